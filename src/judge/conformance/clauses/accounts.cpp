#include <malloc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "base/host_memory.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "driver/decorate/call_log.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: a manager releases what it took from the device, whatever fails.

namespace emm {
namespace {

using namespace emm::conformance;

/// Uses every operation, and ends memory early, late, twice and never. Returns how many frees
/// failed before the reset. Later failures do not count, because after a reset a manager may refuse
/// a late free.
std::size_t use_everything(Bench& b) {
  const auto first = b.stream();
  const auto second = b.stream();
  auto kept = b.try_memalloc(600_KiB, first);
  auto large = b.try_memalloc(5_MiB, first);
  {
    const auto dropped = b.try_memalloc(700_KiB, second);
    const auto managed = b.try_managed(1000);
    const auto mapped = b.try_hosted(64, {.mapped = true});
    const auto pinned = b.try_hosted(64, {});
    const auto region = b.try_pin(b.buffer(), {.mapped = true});
    const auto unmapped = b.try_pin(b.buffer());
  }
  if (large) {
    const auto freed = large->free(second);
  }
  const auto other = b.try_memalloc(5_MiB, second);
  auto beside = b.try_memalloc(2_MiB, first);
  if (beside) {
    const auto freed = beside->free(kPerThreadStream);
  }
  {
    const auto outer = b.defer();
    const auto inner = b.defer();
    const auto inside = b.try_memalloc(900_KiB);
    const std::array large_ones{b.try_memalloc(3_MiB), b.try_memalloc(6_MiB)};
    const auto host = b.try_hosted(64, {.mapped = true});
  }
  if (kept) {
    const auto handle = b.manager().get_ipc_handle(kept->view());
  }
  const auto info = b.manager().get_memory_info();
  const auto flushed = b.manager().flush();
  const auto late = b.try_hosted(64, {.mapped = true});
  if (const auto free_now = b.device().mem_get_info()) {
    // Requests more than is free, so that the manager makes room.
    for (const auto size : {free_now->free + 2_MiB, std::min(free_now->free + 2_MiB, 10_MiB)})
      if (const auto out = b.try_memalloc(size)) continue;
  }
  const auto failed = b.observer().failures();
  b.reset();
  const auto after = b.try_memalloc(4_KiB);
  return failed;
}

std::uint64_t owed(Bench& b) {
  std::uint64_t count = 0;
  for (std::size_t kind = 0; kind < CallLedger::kKinds; ++kind) {
    count += b.watch().ledger().live(static_cast<CallLedger::Kind>(kind)).count;
  }
  return count;
}

/// Counts the contexts that a manager made current and did not pop. A pop that the driver refused
/// is not the manager's fault, so it does not count.
std::uint64_t left_current(Bench& b) {
  const auto made = [&](Call call) {
    const auto calls = b.watch().ledger().calls(call);
    return calls.made - calls.failed;
  };
  const auto events = b.watch().events();
  const auto popped =
      made(Call::ctx_pop_current) +
      static_cast<std::uint64_t>(std::count_if(events.begin(), events.end(), [](const auto& event) {
        return event.call == Call::ctx_pop_current && event.native != 0;
      }));
  const auto pushed = made(Call::ctx_push_current);
  return pushed > popped ? pushed - popped : 0;
}

std::uint64_t refused_ends(Bench& b) {
  std::uint64_t count = 0;
  for (const auto& event : b.watch().events())
    count += is_end(event.call) && event.native != 0 ? 1u : 0u;
  return count;
}

/// Returns ": " and the first call that failed with `native`, or nothing.
std::string first_refused(Bench& b, std::int32_t native) {
  for (const auto& event : b.watch().events())
    if (event.native == native) return text::format(": {}", to_text(event, b.device()));
  return {};
}

/// Expects, after the end of a trial's manager, that each thing it took has ended, once. Only what
/// the driver refused to take back may be left.
void expect_each_ended_once(Bench& b, Bench& trial, std::string_view done) {
  const auto& ledger = trial.watch().ledger();
  b.show_calls_of(&trial);
  b.expect(owed(trial) <= refused_ends(trial), done, ledger.verdict(),
           "only what the driver refused to take back is left");
  b.expect(ledger.double_ends() == 0 && ledger.foreign_ends() == 0, done, ledger.verdict(),
           "each thing ended once");
  b.show_calls_of(nullptr);
}

/// Fails each driver call in turn, on a device of its own: those that end something, or all others.
void fail_in_turn(Bench& b, bool of_ends, std::int32_t native) {
  constexpr std::uint64_t kMost = 300;  // calls: more than the sequence makes with any manager
  b.untraceable();
  for (std::uint64_t n = 1; n < kMost && !b.decided(); ++n) {
    auto fresh = Bench::create(b.subject(), "accounts/every_call_failed");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& trial = **fresh;
    trial.manager();
    if (trial.decided()) return b.inconclusive("initialize fails");
    trial.watch().fail_nth(n, native, of_ends);
    use_everything(trial);
    const auto reached = trial.watch().failed_nth();
    trial.watch().fail_nth(0, 0, of_ends);
    const auto done = text::format("every operation, driver call {} failing with {}{}", n, native,
                                   first_refused(trial, native));
    b.show_calls_of(&trial);
    for (const auto size : {600_KiB, 5_MiB}) {
      const auto block = trial.try_memalloc(size);
      b.expect(!block || trial.fill(*block, 3), text::format("{}; then memalloc({})", done, size),
               "the device refuses to write there", "memory");
    }
    b.show_calls_of(nullptr);
    const auto flushed = trial.manager().flush();
    const auto live = trial.manager().state().live_bytes;
    trial.end_manager();
    if (trial.watch().total() == 0)
      return b.inconclusive("the driver calls of this manager are not seen here");
    expect_each_ended_once(b, trial, done);
    b.show_calls_of(&trial);
    b.expect(left_current(trial) == 0, done,
             text::format("{} calls of cuCtxPushCurrent are not undone", left_current(trial)),
             "each is, before its slot returns");
    // A free that fails may leave its memory alive: a call that fails changes nothing.
    const bool is_told = of_ends && trial.observer().failures() != 0;
    b.expect_rule("accounts/live_bytes", is_told || live.value_or(0) == 0,
                  text::format("{}; then all ended", done),
                  text::format("live bytes {}", live.value_or(0)), "0");
    b.show_calls_of(nullptr);
    if (!reached) return;
  }
}

/// Fails each driver call of initialize() in turn, asks for it once more or not, and expects the
/// manager's end to release what the failed one had taken.
void fail_initialize_in_turn(Bench& b, std::int32_t native) {
  constexpr std::uint64_t kMost = 100;  // calls: more than initialize() makes with any manager
  for (const bool is_asked_again : {false, true}) {
    for (std::uint64_t n = 1; n < kMost && !b.decided(); ++n) {
      auto fresh = Bench::create(b.subject(), b.clause());
      if (!fresh) return b.inconclusive(describe(fresh.error()));
      auto& trial = **fresh;
      auto& manager = trial.uninitialized();
      trial.watch().fail_nth(n, native, false);
      static_cast<void>(manager.initialize().has_value());
      const auto reached = trial.watch().failed_nth();
      trial.watch().fail_nth(0, 0, false);
      if (!reached) break;
      if (is_asked_again && manager.initialize()) {
        if (const auto block = manager.memalloc(64_KiB)) static_cast<void>(block->size());
      }
      trial.end_manager();
      expect_each_ended_once(
          b, trial,
          text::format("initialize(), driver call {} failing with {}{}{}; then the manager's end",
                       n, native, first_refused(trial, native),
                       is_asked_again ? "; initialize() once more, and memalloc(65536)" : ""));
    }
  }
}

/// Has the driver refuse one of several frees that a single call makes. Expects the manager to make
/// the others, in that call or at its end.
void refuse_one_of_several(Bench& b) {
  struct Act {
    std::string_view words;
    void (*act)(Bench& bench);
    bool is_of_live = false;  ///< It is about memory that is alive.
  };
  static constexpr Act kActs[] = {
      {"flush()", [](Bench& on) { static_cast<void>(on.manager().flush().has_value()); }},
      {"trim(0)", [](Bench& on) { static_cast<void>(on.manager().trim(0).has_value()); }},
      {"reset()", [](Bench& on) { on.reset(); }},
      {"requests that the driver refuses at first",
       [](Bench& on) {
         for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
           on.watch().fail(call, {2});
         const std::array made{on.try_memalloc(24_MiB), on.try_managed(24_MiB),
                               on.try_hosted(24_MiB, {})};
         for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
           on.watch().fail(call, {});
       }},
      {"reset()", [](Bench& on) { on.reset(); }, true},
      {"the manager's end", [](Bench&) {}}};
  constexpr std::array kFrees{Call::mem_free, Call::mem_free_host, Call::mem_free_async,
                              Call::runtime_free, Call::mem_host_unregister};
  for (const auto& [words, act, is_of_live] : kActs) {
    for (const std::size_t nth : {1, 2}) {
      if (b.decided()) return;
      auto fresh = Bench::create(b.subject(), b.clause());
      if (!fresh) return b.inconclusive(describe(fresh.error()));
      auto& on = **fresh;
      on.manager();
      std::vector<BenchMemory> blocks;
      const auto keep = [&](Result<BenchMemory> made) {
        if (made) blocks.push_back(*std::move(made));
      };
      for (int i = 0; i < 4; ++i) {
        keep(on.try_pin(on.buffer()));
        for (const auto size : {4_KiB, 24_MiB}) {
          keep(on.try_memalloc(size));
          keep(on.try_hosted(size, {.mapped = i % 2 == 0}));
          keep(on.try_managed(size));
        }
      }
      if (!is_of_live) blocks.clear();
      for (const auto call : kFrees) {
        nth == 1 ? on.watch().fail(call, {700}) : on.watch().fail(call, {0, 700});
      }
      act(on);
      blocks.clear();
      on.end_manager();
      for (const auto call : kFrees) on.watch().fail(call, {});
      if (on.watch().total() == 0)
        return b.inconclusive("the driver calls of this manager are not seen here");
      expect_each_ended_once(
          b, on,
          text::format(
              "memory of every kind{}, then {}, the driver refusing one of the frees; then "
              "the manager's end",
              is_of_live ? "" : " freed", words));
    }
  }
}

// Every call by which device memory goes back to the driver: a manager makes one of them.
constexpr auto kDeviceMemoryFrees = {Call::mem_free, Call::runtime_free, Call::mem_free_async,
                                     Call::mem_unmap, Call::mem_release};

/// Answers whether all calls that reserve memory are seen. What the driver's own pools reserve is
/// not seen.
bool reserving_is_seen(Bench& b) {
  const auto& ledger = b.watch().ledger();
  return b.watch().total() != 0 && ledger.calls(Call::mem_alloc_async).made +
                                           ledger.calls(Call::mem_alloc_from_pool_async).made ==
                                       0;
}

// Memory in the driver's pools.

/// Tells what a simulated device holds for the manager of a new bench, the driver's pools included.
class HeldOnDevice {
 public:
  static constexpr std::uint64_t kSlack = 32_MiB;  // what a driver's pool may take at a time
  explicit HeldOnDevice(Bench& bench) : b_(bench), before_(bench.device().held_bytes()) {}
  std::uint64_t operator()() const {
    const auto now = b_.device().held_bytes();
    return now - std::min(now, before_);
  }
  /// Allocates and frees blocks, and lets their frees be made. Returns the bytes of the blocks.
  std::uint64_t leave_idle() const {
    const auto bytes = b_.leave_idle(4, b_.affordable(256_MiB) / 4);
    static_cast<void>(b_.manager().flush().has_value());
    static_cast<void>(b_.device().ctx_synchronize().has_value());
    return bytes;
  }

 private:
  Bench& b_;
  std::uint64_t before_;
};

bool device_tells_what_it_holds(Bench& b) {
  return b.is_simulated() && b.subject().standins == nullptr && b.watch().total() != 0;
}

/// Compares what a manager says is reserved with what the driver holds for it, where that lies in a
/// pool of the driver. Idle memory of a pool that others may use too need not be the manager's.
void judge_reserved_in_pools(Bench& b) {
  const HeldOnDevice held(b);
  b.manager();
  const auto look = [&](std::string_view when) {
    const auto said = b.manager().state().reserved_bytes;
    if (!said || reserving_is_seen(b) || !device_tells_what_it_holds(b)) return;
    const bool is_own = b.watch().ledger().live(CallLedger::Kind::pool).count != 0;
    const auto now = held();
    const auto least = is_own ? now - std::min(now, HeldOnDevice::kSlack) : 0;
    b.expect(
        *said >= least && *said <= now + HeldOnDevice::kSlack,
        text::format("reserved bytes {}", when), text::format("{}", *said),
        text::format("from {} to {}: the device holds {}", least, now + HeldOnDevice::kSlack, now));
  };
  const auto bytes = held.leave_idle();
  look(text::format("after {} bytes were freed", bytes));
  if (b.manager().trim(0)) look(text::format("after {} bytes were freed, and trim(0)", bytes));
}

/// Expects a trim to release what lies idle in a pool of the driver.
void judge_trim_of_pools(Bench& b) {
  const HeldOnDevice held(b);
  b.manager();
  bool is_kept = false;
  for (const auto part : {2, 8, 0}) {
    held.leave_idle();
    const auto idle = held();
    const auto keep = part == 0 ? 0 : idle / static_cast<unsigned>(part);
    if (!device_tells_what_it_holds(b) || idle <= keep + HeldOnDevice::kSlack) continue;
    is_kept = true;
    const auto done = text::format("trim({}), with nothing alive", keep);
    b.expect_ok(done, b.manager().trim(keep));
    if (held() == idle && (!b.subject().has_trim || b.refuses_early()))
      return b.not_applicable("this manager releases nothing where it is told to trim");
    b.expect(held() <= keep + HeldOnDevice::kSlack, done,
             text::format("the device holds {} bytes, after {} before", held(), idle),
             text::format("about {}", keep));
  }
  if (!is_kept) b.not_applicable("what this manager holds is not seen");
}

// Pending frees.

struct PendingKind {
  std::string_view name;
  std::uint64_t size;
  Result<BenchMemory> (*make)(Bench& b, std::uint64_t size);
};

// Sizes that are no multiple of a page, so that bytes that were rounded show; device memory is
// larger than what managers keep for small blocks, so that its free may wait at all.
constexpr PendingKind kPendingKinds[] = {
    {"managed memory", 300'000, [](Bench& b, std::uint64_t size) { return b.try_managed(size); }},
    {"mapped memory", 70'000,
     [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {.mapped = true}); }},
    {"pinned memory", 5'000, [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {}); }},
    {"device memory", 24_MiB, [](Bench& b, std::uint64_t size) { return b.try_memalloc(size); }},
};

// Powers of two above the rounding, for which most_pending() allows the least more.
constexpr PendingKind kExactPendingKinds[] = {
    {"managed memory", 4_MiB, kPendingKinds[0].make},
    {"mapped memory", 4_MiB, kPendingKinds[1].make},
    {"pinned memory", 8_MiB, kPendingKinds[2].make},
};

/// Answers whether the manager makes its frees on a thread of its own.
bool probe_frees_elsewhere(Bench& b) {
  const FreesElsewhere elsewhere(b);
  for (const auto& kind : kPendingKinds)
    if (const auto block = kind.make(b, kind.size)) continue;
  b.expect_ok("flush()", b.manager().flush());
  return static_cast<bool>(elsewhere);
}

/// Waits until `holds` is true, because a thread of the manager may be about to change the counts
/// that it reads. Returns false if it is still false after 50 ms.
bool wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 50; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

/// Expects that no bytes are pending when no free is. `done` says what was done before.
void expect_no_pending_bytes(Bench& b, std::string_view done) {
  const auto has_none = [&b] {
    const auto state = b.manager().state();
    return state.pending_count != 0 || state.pending_bytes.value_or(0) == 0;
  };
  b.expect(wait_until(has_none), text::format("{}: pending_bytes, with no free pending", done),
           text::format("{}", b.manager().state().pending_bytes.value_or(0)), "0");
}

/// Returns the most bytes that a manager may count for a free. Sizes may be rounded up, also to
/// powers of two.
std::uint64_t most_pending(std::uint64_t size) {
  constexpr auto kRounding = 2_MiB;  // a manager may round a size up to a page of the device
  const bool is_exact = std::has_single_bit(size) && size >= 2 * kRounding;
  return is_exact ? size + kRounding : 2 * size + kRounding;
}

/// Judges one free of a kind, from the moment when it becomes pending until it is made. If a thread
/// of the manager makes frees, a deferral holds this one back meanwhile.
void judge_pending(Bench& b, const PendingKind& kind, bool elsewhere) {
  auto block = kind.make(b, kind.size);
  b.expect_ok("flush()", b.manager().flush());
  const auto before = b.manager().state();
  const auto added_before = b.observer().added().size();
  if (!block || !before.pending_count) return;
  const auto address = block->address();
  std::optional<Deferral> deferred;
  if (elsewhere) deferred.emplace(b.defer());
  block->drop();
  const auto after = b.manager().state();
  if (!after.pending_count) return;
  if (*after.pending_count == *before.pending_count) {
    if (elsewhere) return;
    // The free has been made already, or pending_count wrongly leaves it out.
    const auto ends = {Call::mem_free_host, Call::mem_free};
    b.watch().forget();
    b.expect_ok("flush()", b.manager().flush());
    std::size_t made = 0;
    for (const auto& event : b.watch().events())
      made +=
          event.pointer == address && std::find(ends.begin(), ends.end(), event.call) != ends.end();
    b.expect(made <= *after.pending_count || kind.size > 1_MiB,
             text::format("the end of {} bytes of {}, then flush()", kind.size, kind.name),
             text::format("its free is made, and pending_count was {}", *after.pending_count),
             "1, or a free that does not wait");
  }
  if (*after.pending_count != *before.pending_count + 1) return;
  const auto done =
      text::format("the end of {} bytes of {}, whose free waits", kind.size, kind.name);
  if (before.pending_bytes && after.pending_bytes) {
    const auto bytes = *after.pending_bytes - *before.pending_bytes;
    const auto told = b.observer().added();
    // Frees without a size add no bytes: HST-8.
    const bool is_sized = !b.is_numba() && (told.empty() || told.back().second);
    b.expect((bytes == 0 && !is_sized) || (bytes >= kind.size && bytes <= most_pending(kind.size)),
             text::format("{}: pending_bytes", done), text::format("{} more", bytes),
             text::format("{} more, or somewhat above where sizes are rounded", kind.size));
  }
  const auto added = b.observer().added();
  b.watch().forget();
  deferred.reset();
  b.expect_ok("flush()", b.manager().flush());
  expect_no_pending_bytes(b, text::format("{}; then flush()", done));
  if (added.size() != added_before + 1) return;
  b.expect(b.count(added.back().first) != 0, text::format("{}; then flush()", done),
           text::format("pending_added() said {}, and it is not called",
                        call_info(added.back().first).name),
           "the driver call that pending_added() named");
}

/// Expects pending_added() to name the call that frees host or managed memory which a deferral
/// holds back.
void judge_named_call(Bench& b, const PendingKind& kind) {
  auto block = kind.make(b, kind.size);
  if (!block || b.decided()) return;
  b.expect_ok("flush()", b.manager().flush());
  const auto address = block->address();
  auto deferred = b.defer();
  const auto added_before = b.observer().added().size();
  b.watch().forget();
  block->drop();
  const auto added = b.observer().added();
  if (added.size() != added_before + 1) return;
  deferred.end();
  b.expect_ok("flush()", b.manager().flush());
  const auto named = added.back().first;
  for (const auto& event : b.watch().events()) {
    if (event.call != Call::mem_free && event.call != Call::mem_free_host) continue;
    if (event.pointer != address) continue;
    b.expect(event.call == named,
             text::format("{} bytes of {} freed inside a deferral, its end and flush()", kind.size,
                          kind.name),
             text::format("pending_added() said {}, and {} makes the free", call_info(named).name,
                          call_info(event.call).name),
             "the driver call that pending_added() named");
  }
}

/// Expects the numbers that the host was told to add up. With `elsewhere` it waits, because a
/// thread of the manager may tell them later.
void judge_told(Bench& b, bool elsewhere) {
  const auto all_are_told = [&b] {
    std::size_t count = 0;
    for (const auto& flush : b.observer().flushes()) count += flush.count;
    return count == b.observer().added().size() && b.manager().state().pending_count == 0;
  };
  if (elsewhere) wait_until(all_are_told);
  const auto added = b.observer().added();
  const auto pending = b.manager().state().pending_count;
  const auto flushes = b.observer().flushes();
  if ((added.empty() && flushes.empty()) || pending.value_or(1) != 0) return;
  std::uint64_t count = 0, bytes = 0, added_bytes = 0;
  for (const auto& flush : flushes) {
    count += flush.count;
    bytes += flush.bytes;
  }
  b.expect_equal(text::format("the frees that flushed() told of, after {} calls of pending_added() "
                              "and with none pending",
                              added.size()),
                 count, added.size());
  const bool are_sized = std::all_of(added.begin(), added.end(), [&](const auto& one) {
    added_bytes += one.second.value_or(0);
    return one.second.has_value();
  });
  if (are_sized)
    b.expect_equal("the bytes that flushed() told of, after those of pending_added()", bytes,
                   added_bytes);
}

/// Frees blocks inside a deferral whose sizes are no multiple of any rounding.
void free_odd_sizes(Bench& b) {
  std::vector<BenchMemory> blocks;
  for (const std::uint64_t size : {1'000, 70'001}) {
    for (const auto& kind : kPendingKinds)
      if (auto block = kind.make(b, size)) blocks.push_back(*std::move(block));
  }
  const auto deferred = b.defer();
  blocks.clear();
}

// A few frees of odd sizes, hundreds of small ones (a count that a queue of fixed length would
// lose), and three of 3 GiB, whose sum no number of 32 bits holds.
constexpr PendingKind kManyPendingKinds[] = {
    {"managed memory", 300'000, kPendingKinds[0].make},
    {"mapped memory", 70'000, kPendingKinds[1].make},
    {"pinned memory", 5'000, kPendingKinds[2].make},
    {"device memory", 2_MiB + 512, kPendingKinds[3].make},
};
constexpr PendingKind kSmallPendingKinds[] = {
    {"managed memory", 4_KiB, kPendingKinds[0].make},
    {"mapped memory", 64, kPendingKinds[1].make},
};
constexpr PendingKind kHugePendingKinds[] = {
    {"managed memory", 3_GiB, kPendingKinds[0].make},
    {"mapped memory", 3_GiB, kPendingKinds[1].make},
};

/// Makes `rounds` frees of each kind, and expects at least as many to be pending as the host was
/// told of.
void judge_many_pending(Bench& b, int rounds, std::span<const PendingKind> kinds) {
  if (b.decided()) return;
  b.expect_ok("flush()", b.manager().flush());
  const auto at_first = b.manager().state();
  const auto before = at_first.pending_count.value_or(0);
  b.observer().forget();
  const auto deferred = b.defer();
  std::uint64_t count = 0, bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    for (const auto& kind : kinds) {
      auto block = kind.make(b, kind.size);
      if (!block) continue;
      const auto count_before = b.manager().state().pending_count;
      block->drop();
      if (b.manager().state().pending_count == count_before) continue;
      ++count;
      bytes += kind.size;
    }
  }
  const auto state = b.manager().state();
  const auto pending = state.pending_count;
  const auto told = b.observer().added();
  const bool are_sized =
      !b.is_numba() &&
      std::all_of(told.begin(), told.end(), [](const auto& one) { return one.second.has_value(); });
  if (are_sized && pending == before + count && state.pending_bytes && at_first.pending_bytes)
    b.expect(*state.pending_bytes >= *at_first.pending_bytes + bytes,
             text::format("{} frees of {} bytes, which wait inside a deferral", count, bytes),
             text::format("pending_bytes {}, after {} before them", *state.pending_bytes,
                          *at_first.pending_bytes),
             text::format("{} more, or somewhat above where sizes are rounded", bytes));
  std::uint64_t waiting = before + b.observer().added().size();
  for (const auto& flush : b.observer().flushes())
    waiting -= std::min<std::uint64_t>(waiting, flush.count);
  b.expect(!pending || *pending >= waiting,
           text::format("{} frees inside a deferral", b.observer().added().size()),
           text::format("pending_count {}", pending.value_or(0)),
           text::format("{} or more, by what pending_added() and flushed() told", waiting));
}

std::size_t count_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Leaves frees and idle memory to a thread of the manager's own, if it has one. What that thread
/// does is told and counted like the rest.
void judge_own_thread(Bench& b) {
  constexpr int kPatience = 60;  // naps in which the thread has to act
  b.untraceable();
  b.expect(true, {}, {}, {});
  const auto threads = count_threads();
  b.manager();
  { const auto block = b.try_memalloc(64_KiB); }  // some begin one with the first request
  if (b.watch().total() == 0 || count_threads() <= threads) return;
  const auto leave = [&b](std::span<const PendingKind> kinds) {
    std::vector<BenchMemory> blocks;
    for (int i = 0; i < 4; ++i) {
      for (const auto& kind : kinds)
        if (auto block = kind.make(b, 2_MiB + 512)) blocks.push_back(*std::move(block));
    }
  };
  const auto wait_for = [](const std::function<bool()>& holds) {
    for (int i = 0; i < kPatience && !holds(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const auto& ledger = b.watch().ledger();
  const auto given = [&](bool with_managed) {
    return ledger.live(CallLedger::Kind::device).bytes + ledger.physical_bytes() +
           (with_managed ? ledger.live(CallLedger::Kind::managed).bytes : 0);
  };
  const auto is_exact = [&](bool with_managed) {
    return b.manager().state().reserved_bytes == given(with_managed);
  };
  leave(kPendingKinds);
  const std::array was_exact{is_exact(false), is_exact(true)};
  wait_for([&] { return b.manager().state().pending_count == 0; });
  judge_told(b, true);
  wait_for([&] { return given(false) == 0; });
  if (was_exact[0] || was_exact[1])
    b.expect_rule("accounts/reserved", wait_until([&] {
                    return (was_exact[0] && is_exact(false)) || (was_exact[1] && is_exact(true));
                  }),
                  "memory left to the manager's own thread: reserved_bytes",
                  text::format("{}", b.manager().state().reserved_bytes.value_or(0)),
                  text::format("{}, which the driver has given, as before", given(was_exact[1])));

  constexpr std::array kFrees{Call::mem_free, Call::mem_free_host, Call::mem_free_async,
                              Call::runtime_free, Call::mem_unmap};
  const auto is_refused = [&b] {
    const auto events = b.watch().events();
    return std::any_of(events.begin(), events.end(),
                       [](const CallEvent& event) { return event.native == kIllegalAddress; });
  };
  for (const auto& kind : kPendingKinds) {
    leave({&kind, 1});
    for (const auto call : kFrees) b.watch().fail_always(call, kIllegalAddress);
    b.watch().forget();
    const auto failures = b.observer().failures();
    wait_for(is_refused);
    if (is_refused())
      b.expect_rule("errors/frees_told",
                    wait_until([&] { return b.observer().failures() != failures; }),
                    text::format("frees of {} left to the manager's own thread, where the driver "
                                 "refuses them",
                                 kind.name),
                    "nobody is told", "the observer is told of one");
    for (const auto call : kFrees) b.watch().fail_always(call, 0);
    static_cast<void>(b.manager().flush().has_value());  // its answer may be that of such a free
  }
  b.watch().forgive();
}

/// Also covers counts and bytes that do not fit a small integer.
void judge_many_pending(Bench& b) {
  judge_many_pending(b, 14, kManyPendingKinds);
  judge_many_pending(b, 300, kSmallPendingKinds);
  if (b.decided() || !b.is_simulated() || b.subject().standins != nullptr) return;
  auto large = b.with_capacity("40GiB");
  if (!large) return b.inconclusive(describe(large.error()));
  (*large)->untraceable();
  (*large)->expect(true, {}, {}, {});
  judge_many_pending(**large, 3, kHugePendingKinds);
  b.take(**large);
}

/// Expects the pending frees of another manager of the same library not to be counted here.
void judge_pending_of_others(Bench& b) {
  const auto other = Bench::create(b.subject(), b.clause());
  if (!other) return b.inconclusive(describe(other.error()));
  (*other)->manager();
  b.expect_ok("flush()", b.manager().flush());
  const auto before = b.manager().state().pending_count;
  {
    const auto deferred = (*other)->manager().defer_cleanup();
    for (const auto& kind : kPendingKinds)
      if (const auto block = kind.make(**other, kind.size)) continue;
    if (const auto after = b.manager().state().pending_count; before && after)
      b.expect_equal("pending_count, after frees inside a deferral of another manager", *after,
                     *before);
  }
}

/// Expects a flush to make every pending free, even one whose work has not ended.
void judge_flush_of_pending_work(Bench& b) {
  b.expect_ok("flush()", b.manager().flush());
  const auto stream = b.stream();
  for (const auto size : {64_KiB, 5_MiB}) {
    auto block = b.try_memalloc(size, stream);
    if (!block || !b.device().memset_d8_async(block->device(), 1, size, stream)) return;
    const auto before = b.manager().state().pending_count.value_or(0);
    if (!block->free(stream) || b.manager().state().pending_count.value_or(0) == before) continue;
    b.expect_ok("flush()", b.manager().flush());
    const auto is_made = [&] { return b.manager().state().pending_count.value_or(0) <= before; };
    const bool made = wait_until(is_made);
    const auto after = b.manager().state().pending_count.value_or(0);
    b.expect(made,
             text::format(
                 "{} bytes freed on a stream that has work, whose free waits; then flush()", size),
             text::format("pending_count {}", after), text::format("{}", before));
  }
}

/// Trims while one block is live, alone in the allocation that it was cut from.
void judge_trim_beside_one(Bench& b) {
  for (const auto size : {std::uint64_t{1}, std::uint64_t{512}, 4_KiB, 300_KiB, 3_MiB}) {
    b.apart([&](Bench& on) {
      const auto kept = on.try_memalloc(size);
      if (!kept || !on.fill(*kept, 0x39) || !on.manager().trim(0)) return;
      const auto next = on.try_memalloc(size);
      if (next) on.fill(*next, 0x3a);
      on.expect(on.holds(*kept, 0x39), text::format("trim(0) with {} bytes alive", size),
                "they have other content, or are the device's again", "they are as they were");
    });
    if (b.decided()) return;
  }
}

/// What a trim has left, and why, where nothing is alive and more is held than was to be kept. If a
/// driver allocation serves a small request and not one of its own size, its free neighbours are
/// not joined.
std::string told_held(Bench& on, std::uint64_t keep, std::string words) {
  if (on.held() <= keep) return words;
  for (const auto small : {std::uint64_t{512}, 64_KiB, 1_MiB}) {
    auto piece = on.try_memalloc(small);
    if (!piece) continue;
    const auto around = on.watch().ledger().find(CallLedger::Kind::device, piece->address());
    if (!around || around->size <= 2 * small) continue;
    piece->drop();
    static_cast<void>(on.manager().flush().has_value());
    const auto whole = on.try_memalloc(around->size);
    if (!whole || whole->address() - around->base < around->size) continue;
    return text::format(
        "{}: {} bytes at {}, of which none is alive, serve a request for {} bytes and none for {}; "
        "{}",
        kNotJoined, around->size, text::hex(around->base), small, around->size, words);
  }
  return words;
}

/// Calls `leave`, which frees everything that it allocates, and expects trim() to release it.
template <class Leave>
void judge_trim_after(Bench& b, std::string_view done, Leave leave) {
  if (b.decided()) return;
  b.apart([&](Bench& on) {
    on.manager();
    leave(on);
    if (!on.device().ctx_synchronize()) return;
    on.expect_ok("flush()", on.manager().flush());
    for (const auto keep : {on.held() / 2, on.held() / 5, std::uint64_t{0}}) {
      const auto held = on.held();
      on.expect_ok(text::format("{}; then trim({})", done, keep), on.manager().trim(keep));
      const bool fits = on.held() <= keep;
      const auto seen =
          text::format("{} bytes of the device are held, of {} before", on.held(), held);
      on.expect(fits, text::format("{}; then trim({})", done, keep), told_held(on, keep, seen),
                text::format("{} or less", keep));
    }
  });
}

/// Leaves more idle than a manager takes from the device at once.
void leave_much_idle(Bench& on) { on.leave_idle(16, on.affordable(320_MiB) / 20); }

/// Frees managed memory, after some device memory, so that a manager may keep both.
void leave_managed_idle(Bench& on) {
  on.leave_idle(2, 3_MiB);
  std::vector<BenchMemory> blocks;
  for (const auto size : {64_KiB, 3_MiB, 5_MiB})
    if (auto block = on.try_managed(size)) blocks.push_back(*std::move(block));
}

/// Asks for memory of every kind where the driver has none.
void refuse_everything(Bench& on) {
  constexpr std::array kCalls{Call::mem_alloc,         Call::runtime_malloc,
                              Call::mem_create,        Call::mem_alloc_async,
                              Call::mem_host_alloc,    Call::mem_alloc_managed,
                              Call::mem_host_register, Call::mem_alloc_from_pool_async};
  for (const auto call : kCalls) on.watch().fail_always(call, kOutOfMemory);
  const std::array made{on.try_memalloc(24_MiB), on.try_managed(24_MiB),
                        on.try_hosted(24_MiB, {.mapped = true})};
  for (const auto call : kCalls) on.watch().fail_always(call, 0);
  on.watch().forgive();
}

/// Leaves the memory of small blocks and of a large one to a reset.
void leave_to_a_reset(Bench& on) {
  std::vector<BenchMemory> blocks;
  for (const auto size : {1_KiB, 64_KiB, 1_MiB, 1_MiB, on.affordable(80_MiB) / 4})
    if (auto block = on.try_memalloc(size)) blocks.push_back(*std::move(block));
  on.reset();
}

/// Frees blocks of two streams, some of them on the other stream.
void leave_idle_of_two_streams(Bench& on) {
  const std::array streams{on.stream(), on.stream()};
  std::vector<BenchMemory> blocks;
  const auto most = on.affordable(40_MiB) / 16;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto size = i % 3 == 0 ? most : i % 3 == 1 ? most / 2 : 70_KiB;
    if (auto block = on.try_memalloc(size, streams[i % 2])) blocks.push_back(*std::move(block));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i)
    on.expect_ok("free() on a stream", blocks[i].free(streams[(i + i / 4) % 2]));
}

/// Frees blocks that fill the device, so that the manager has many idle driver allocations.
void leave_many_idle(Bench& on, std::uint64_t least) {
  const auto room = on.affordable(80_MiB);
  const auto size = std::min(room / least, 3_MiB);
  std::vector<BenchMemory> blocks;
  for (std::uint64_t live = 0; live + size < room - room / 8; live += size) {
    auto block = on.try_memalloc(size);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
}

/// Makes requests while the driver refuses to order them after the work of another stream.
void leave_idle_after_refused_waits(Bench& on) {
  constexpr std::array kWaits{Call::ctx_synchronize,   Call::stream_synchronize,
                              Call::event_synchronize, Call::stream_wait_event,
                              Call::event_query,       Call::stream_query};
  const std::array streams{on.stream(), on.stream()};
  const auto size = on.affordable(48_MiB) / 4;
  auto block = on.try_memalloc(size, streams[0]);
  auto small = on.try_memalloc(70_KiB, streams[0]);
  if (!block || !small) return;
  on.expect_ok("free() on another stream", block->free(streams[1]));
  for (const auto call : kWaits) on.watch().fail_always(call, kIllegalAddress);
  for (const auto stream : {streams[0], StreamHandle{}})
    if (const auto refused = on.try_memalloc(size, stream)) continue;
  static_cast<void>(small->free(streams[1]).has_value());
  for (const auto call : kWaits) on.watch().fail_always(call, 0);
  if (const auto served = on.try_memalloc(size, streams[0])) return;
}

/// Frees many blocks of two streams, and has the manager wait for their work where the driver
/// refuses that.
void leave_idle_after_a_refused_wait(Bench& on, const std::function<void(Bench&)>& wait) {
  constexpr std::array kWaits{Call::ctx_synchronize, Call::stream_synchronize,
                              Call::event_synchronize};
  for (const auto call : {Call::event_query, Call::stream_query})
    on.watch().fail_always(call, kNotReady);
  leave_idle_of_two_streams(on);
  for (const auto call : kWaits) on.watch().fail_always(call, kIllegalAddress);
  wait(on);
  for (const auto call : kWaits) on.watch().fail_always(call, 0);
  for (const auto call : {Call::event_query, Call::stream_query}) on.watch().fail_always(call, 0);
}

/// Expects a trim to release each of the driver's allocations in which no block lives, but for
/// `keep` bytes.
void judge_trim_beside(Bench& b, std::uint64_t size, std::uint64_t keep) {
  if (b.decided()) return;
  b.apart([=](Bench& on) {
    const auto kept = on.try_memalloc(size);
    if (!kept) return;
    {
      std::vector<BenchMemory> blocks;
      for (const auto part : {4, 4, 2, 10})
        if (auto block = on.try_memalloc(on.affordable(80_MiB) / 5 / static_cast<unsigned>(part)))
          blocks.push_back(*std::move(block));
    }
    on.expect_ok("flush()", on.manager().flush());
    const auto around = on.watch().ledger().find(CallLedger::Kind::device, kept->address());
    const auto held = on.held();
    if (!around) return;
    const auto done = text::format("trim({}), with {} bytes alive", keep, size);
    on.expect_ok(done, on.manager().trim(keep));
    on.expect(
        on.held() <= around->size + keep, done,
        text::format("{} bytes of the device are held, of {} before", on.held(), held),
        text::format("{} or less: {} of the driver's allocation that they lie in, and {} that "
                     "are idle",
                     around->size + keep, around->size, keep));
  });
}

void judge_trim_beside_live(Bench& b) {
  judge_trim_beside(b, 64_KiB, 0);
  const auto unit = b.affordable(80_MiB) / 20;
  judge_trim_beside(b, 5 * unit, unit);
}

// The manager's own host memory.

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
std::uint64_t heap_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}
#else
std::uint64_t heap_in_use() { return 0; }
#endif

/// Runs `act` thousands of times, of a class of Python's hundreds, and judges how much the heap
/// grows each time.
void judge_heap(Bench& b, std::string_view done, const std::function<void()>& act,
                int most_times = 1200) {
  const int times = b.subject().is_class ? most_times / 4 : most_times;
  const int first = times / 6;
  // A leaked record takes more than this. Below it, the ledger may have learnt of a few more
  // addresses because a thread of the manager fell behind.
  constexpr std::uint64_t kLeast = 48;
  // The device and the ledger keep this much for each handle, and handles are never reused.
  constexpr std::uint64_t kOfHandle = 160;
  if (b.decided()) return;
  bool trims = false;
  const auto repeat = [&](int count) {
    for (int i = 0; i < count; ++i) {
      act();
      b.watch().forget();
      b.observer().forget();
    }
    b.expect_ok("flush()", b.manager().flush());  // lets a thread of the manager catch up
    if (trims) b.expect_ok("trim(0)", b.manager().trim(0));
    b.watch().forget();
    b.observer().forget();
  };
  const auto handles = [&] {
    std::uint64_t count = 0;
    for (const auto call : {Call::mem_create, Call::event_create, Call::mem_address_reserve,
                            Call::mem_pool_create, Call::stream_create})
      count += b.watch().ledger().calls(call).made;
    return count;
  };
  std::uint64_t least = ~std::uint64_t{0};
  const auto grows = [&] {
    repeat(first);
    least = ~std::uint64_t{0};
    for (int round = 0; round < 3 && least != 0; ++round) {
      const auto handles_before = handles();
      const auto before = heap_in_use();
      repeat(times);
      const auto after =
          heap_in_use() - std::min(heap_in_use(), kOfHandle * (handles() - handles_before));
      least = std::min(least, after > before ? after - before : 0);
    }
    return least >= static_cast<std::uint64_t>(times) * kLeast;
  };
  bool is_growing = grows();
  // A manager may keep records of idle memory, but must drop them with that memory.
  const auto held = b.held();
  if (is_growing && b.manager().trim(0) && b.held() < held) {
    trims = true;
    is_growing = grows();
  }
  b.expect(!is_growing, text::format("{} times {}", times, done),
           text::format("{} bytes more of the process's heap are in use, {} each time", least,
                        least / static_cast<std::uint64_t>(times)),
           "no more than before");
}

void judge_heap_of_questions(Bench& b) {
  auto& manager = b.manager();
  if (const auto block = manager.memalloc(64_KiB)) {
    const MemoryView view{.device_pointer = block->device_pointer(), .size = block->size()};
    judge_heap(b, "get_ipc_handle()",
               [&] { static_cast<void>(manager.get_ipc_handle(view).has_value()); });
  }
  judge_heap(b, "get_memory_info()",
             [&] { static_cast<void>(manager.get_memory_info().has_value()); });
  judge_heap(b, "state()", [&] { static_cast<void>(manager.state()); });
  judge_heap(b, "statistics()", [&] { static_cast<void>(manager.statistics()); });
}

void check_heap(Bench& b) {
  if (!b.is_simulated())
    return b.not_applicable("the check would also count a real driver's own host memory");
  b.untraceable();
  b.expect(true, {}, {}, {});
  auto& manager = b.manager();
  const auto flush = [&] { b.expect_ok("flush()", manager.flush()); };
  for (const auto size : {1_KiB, 300_KiB, 24_MiB}) {
    judge_heap(b, text::format("memalloc({}) and its free", size), [&] {
      { const auto block = manager.memalloc(size); }
      if (size > 1_MiB) flush();
    });
  }
  judge_heap(b, "two neighbours freed, and memory of both asked for", [&] {
    {
      const auto first = manager.memalloc(100_KiB);
      const auto second = manager.memalloc(100_KiB);
    }
    const auto both = manager.memalloc(200_KiB);
  });
  judge_heap(b, "memallocmanaged(4096), its free and flush()", [&] {
    { const auto block = manager.memallocmanaged(4_KiB, AttachFlags::global); }
    flush();
  });
  judge_heap(b, "memhostalloc(4096), its free and flush()", [&] {
    { const auto block = manager.memhostalloc(4_KiB, {.mapped = true}); }
    flush();
  });
  const auto range = b.buffer();
  judge_heap(b, "mempin(4096) and its end", [&] { const auto block = manager.mempin(range, {}); });
  judge_heap(b, "a request for 2^50 bytes, which is refused",
             [&] { const auto refused = manager.memalloc(std::uint64_t{1} << 50); });
  judge_heap(b, "a request for 2^50 bytes of page-locked memory, which is refused",
             [&] { const auto refused = manager.memhostalloc(std::uint64_t{1} << 50, {}); });
  judge_heap(b, "a request for 2^50 bytes of managed memory, which is refused", [&] {
    const auto refused = manager.memallocmanaged(std::uint64_t{1} << 50, AttachFlags::global);
  });
  judge_heap(b, "mempin of a region that is pinned, which is refused", [&] {
    const auto block = manager.mempin(range, {});
    const auto again = manager.mempin(range, {});
  });
  judge_heap(b, "memalloc(3 MiB), its free and trim(0)", [&] {
    { const auto block = manager.memalloc(3_MiB); }
    if (manager.trim(0)) return;
  });
  if (!b.is_numba()) {
    judge_heap(b, "memalloc(65536), memhostalloc(64) and reset()", [&] {
      const auto block = manager.memalloc(64_KiB);
      const auto host = manager.memhostalloc(64, {});
      manager.reset();
    });
  }
  judge_heap_of_questions(b);
  judge_heap(b, "defer_cleanup() and its end",
             [&] { const auto deferred = manager.defer_cleanup(); });
  judge_heap(
      b, "another manager made, initialized and ended",
      [&] {
        const auto made = b.subject().factory.make({.driver = &b.driver(),
                                                    .runtime = b.runtime(),
                                                    .clock = &b.platform().clock(),
                                                    .observer = &b.observer(),
                                                    .profile = b.subject().profile});
        if (made && (*made)->initialize()) return;
      },
      240);
  judge_heap(
      b, "a manager made for a look, without a device",
      [&] {
        if (const auto made = b.subject().factory.make({})) return;
      },
      240);
  if (const auto info = b.device().mem_get_info(); info && b.is_simulated()) {
    b.leave_on_device(8_MiB);
    judge_heap(b, "eight blocks of 1 MiB, their frees and memalloc(4 MiB), where the device has 8",
               [&] {
                 {
                   std::array<std::optional<Result<MemoryPointer>>, 8> blocks;
                   for (auto& block : blocks) block.emplace(manager.memalloc(1_MiB));
                 }
                 const auto joined = manager.memalloc(4_MiB);
               });
    const auto kept = manager.memalloc(6_MiB);
    judge_heap(b, "a request for 12 MiB, where the device has 8",
               [&] { const auto refused = manager.memalloc(12_MiB); });
  }
}

// Every call by which device memory comes from the driver.
constexpr std::array kDriverAllocations{Call::mem_alloc,
                                        Call::runtime_malloc,
                                        Call::mem_create,
                                        Call::mem_alloc_async,
                                        Call::mem_alloc_from_pool_async,
                                        Call::mem_alloc_managed};

/// Frees a block whose work has not ended. Either its bytes serve at once, at least on its own
/// stream, or largest_free_bytes must leave them out.
void judge_largest_while_work_is_pending(Bench& b) {
  constexpr auto kSize = 24_MiB;  // larger than what managers keep for small blocks
  std::uint64_t largest = 0;
  for (const bool is_exact : {true, false}) {
    for (const bool on_own_stream : {true, false}) {
      auto fresh = Bench::create(b.subject(), b.clause());
      if (!fresh) return b.inconclusive(describe(fresh.error()));
      auto& on = **fresh;
      on.untraceable();
      const auto stream = on.stream();
      auto block = on.try_memalloc(kSize, stream);
      const auto before = on.manager().state().largest_free_bytes;
      if (!block || !before || !on.device().memset_d8_async(block->device(), 1, kSize, stream))
        return;
      for (const auto call : {Call::event_query, Call::stream_query})
        on.watch().fail_always(call, kNotReady);
      if (!block->free(stream)) return;
      largest = on.manager().state().largest_free_bytes.value_or(0);
      if (largest <= *before) return;
      on.watch().forget();
      const auto next = on.try_memalloc(is_exact ? largest : largest - largest / 4,
                                        on_own_stream ? stream : StreamHandle{});
      if (next &&
          on.count(Call::mem_alloc) + on.count(Call::mem_create) + on.count(Call::runtime_malloc) ==
              0)
        return;
    }
  }
  b.expect(false,
           text::format("{} bytes freed on a stream that works on them; largest_free_bytes is {}, "
                        "and as much is asked for",
                        kSize, largest),
           "the device is asked for memory, whatever the stream of the request",
           "memory that the manager has, on the stream of the free at least");
}

/// Expects no count to be beyond its own peak.
void expect_peaks_of_all(Bench& b, std::string_view done) {
  const auto said = b.manager().statistics();
  using Named = std::pair<std::string_view, const MemoryStatistics::Count*>;
  for (const auto& [name, count] :
       {Named{"allocation", &said.allocation}, Named{"allocated_bytes", &said.allocated_bytes},
        Named{"requested_bytes", &said.requested_bytes},
        Named{"reserved_bytes", &said.reserved_bytes}, Named{"segment", &said.segment},
        Named{"active_bytes", &said.active_bytes}}) {
    if (!count->current || !count->peak || *count->peak >= *count->current) continue;
    b.expect(false, text::format("{}; {}.all.peak", done, name), text::format("{}", *count->peak),
             text::format("{} or more, which there is now", *count->current));
  }
}

/// What is refused was never alive, and so is in no peak.
void judge_peaks_of_refused(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  b.manager();
  const auto alive = b.try_memalloc(64_KiB);
  if (b.watch().total() == 0) return;
  for (const auto native : {2, 700}) {
    for (const bool is_deferred : {false, true}) {
      const auto deferred = is_deferred ? std::optional(b.defer()) : std::nullopt;
      const auto before = b.manager().statistics();
      for (const auto call : kDriverAllocations) b.watch().fail_always(call, native);
      const bool is_served = b.try_memalloc(24_MiB) || b.try_managed(24_MiB);
      for (const auto call : kDriverAllocations) b.watch().fail_always(call, 0);
      b.watch().forgive();
      if (is_served) continue;
      const auto after = b.manager().statistics();
      using Peak =
          std::tuple<std::string_view, std::optional<std::uint64_t>, std::optional<std::uint64_t>>;
      for (const auto& [name, was, is] :
           {Peak{"allocation", before.allocation.peak, after.allocation.peak},
            Peak{"allocated_bytes", before.allocated_bytes.peak, after.allocated_bytes.peak},
            Peak{"requested_bytes", before.requested_bytes.peak, after.requested_bytes.peak}})
        if (was && is)
          b.expect(*is == *was,
                   text::format("24 MiB, which the driver refuses with {}{}; {}.all.peak", native,
                                is_deferred ? " in a deferral" : "", name),
                   text::format("{}", *is), text::format("{}, as before", *was));
    }
  }
  if (b.is_numba()) return;
  b.reset();
  const std::array large{b.try_memalloc(24_MiB), b.try_memalloc(20_KiB), b.try_memalloc(3_MiB)};
  expect_peaks_of_all(b, "24 MiB, after refused requests and a reset");
}

/// Requests largest_free_bytes, `times` times, and expects that the device is not asked.
void judge_largest(Bench& b, int times) {
  std::vector<BenchMemory> taken;  // kept, so that the next largest is another one
  for (int i = 0; i < times && b.watch().total() != 0; ++i) {
    const auto largest = b.manager().state().largest_free_bytes.value_or(0);
    if (largest <= 1_KiB) break;
    b.watch().forget();
    // The manager may round sizes up, so less is requested. If its limit leaves no room for a
    // second request, the exact size must come first.
    const auto rounded = b.capacity().limit ? largest : largest - largest / 4;
    auto block = b.try_memalloc(rounded);
    const auto from_device = [&] {
      return b.count(Call::mem_alloc) + b.count(Call::mem_create) + b.count(Call::runtime_malloc);
    };
    bool needs_nothing = block && from_device() == 0;
    if (block && from_device() != 0) {
      // A manager with size classes may serve only the exact largest size, or round the smaller
      // request up to more.
      const auto asked = from_device();
      const auto grown = b.watch().events();
      const auto exact = b.try_memalloc(b.capacity().limit ? largest - largest / 4 : largest);
      needs_nothing = exact && from_device() == asked && b.count(Call::mem_create) == 0 &&
                      std::none_of(grown.begin(), grown.end(), [&](const CallEvent& event) {
                        const auto at = exact->address();
                        return at >= event.result && at < event.result + event.size;
                      });
    }
    b.expect(
        needs_nothing,
        text::format("a request for {} bytes, where largest_free_bytes is {}", rounded, largest),
        block ? "the driver is asked for memory" : answer_of(block.error()),
        "memory that the manager has");
    if (block) taken.push_back(*std::move(block));
  }
  taken.clear();
  b.expect_ok("flush()", b.manager().flush());
}

/// Idle memory between live blocks, so that no piece is as large as all of them together.
void judge_largest_among_holes(Bench& b, std::uint64_t size) {
  if (b.decided()) return;
  std::vector<BenchMemory> kept;
  {
    std::vector<BenchMemory> holes;
    for (int i = 0; i < 16 && b.affordable(64_MiB) >= 16 * size; ++i) {
      auto block = b.try_memalloc(size);
      if (!block) break;
      (i % 2 == 0 ? kept : holes).push_back(*std::move(block));
    }
  }
  b.expect_ok("flush()", b.manager().flush());
  judge_largest(b, 3);
  if (b.manager().trim(0)) judge_largest(b, 3);
}

/// What a manager has been through must not change what it says of its idle memory.
void judge_largest_with_a_past(Bench& b) {
  if (b.watch().total() == 0 || b.is_numba()) return;
  for (const auto call : kDriverAllocations) b.watch().fail_always(call, 2);
  for (const auto size : {64_KiB, 9_MiB}) static_cast<void>(b.try_memalloc(size).has_value());
  for (const auto call : kDriverAllocations) b.watch().fail_always(call, 0);
  judge_largest_among_holes(b, 700_KiB);
  {
    const auto outer = b.defer();
    const auto inner = b.defer();
    judge_largest_among_holes(b, 64_KiB);
  }
  b.reset();
  judge_largest_among_holes(b, 700_KiB);
}

/// Expects memory whose free the driver refused to be counted once, however often the manager frees
/// it again.
void judge_reserved_after_refused_frees(Bench& b) {
  constexpr auto kRounding = 8_MiB;  // what a manager may take beside a block of these sizes
  for (const auto size : {64_KiB, 3_MiB, 24_MiB}) {
    { const std::array idle{b.try_memalloc(size), b.try_memalloc(size)}; }
    b.expect_ok("flush()", b.manager().flush());
    for (const auto call : kDeviceMemoryFrees) b.watch().fail(call, {kIllegalAddress});
    static_cast<void>(b.manager().trim(0).has_value());
    for (const auto call : kDeviceMemoryFrees) b.watch().fail(call, {});
    judge_largest(b, 2);
    static_cast<void>(b.manager().trim(0).has_value());
    const auto said = b.manager().state().reserved_bytes;
    if (!said || !reserving_is_seen(b)) return;
    b.expect(*said <= b.held() + kRounding,
             text::format("reserved bytes after two blocks of {} bytes were freed, and trim(0) "
                          "twice, the first free of which the driver refused",
                          size),
             text::format("{}", *said),
             text::format("no more than about {}, which is held", b.held()));
  }
}

/// Expects what is released to be reserved no longer, of every kind, however often that happens.
void judge_reserved_of_released(Bench& b) {
  constexpr auto kSize = 24_MiB, kRounding = 8_MiB;
  constexpr int kTimes = 4;
  if (!b.subject().has_trim) return;
  const auto release = [&] {
    b.expect_ok("flush()", b.manager().flush());
    return b.manager().trim(0).has_value();
  };
  for (const bool is_managed : {false, true}) {
    for (const bool is_deferred : {false, true}) {
      if (b.decided() || !release()) return;
      const auto before = b.manager().state().reserved_bytes;
      const auto held = b.held();
      for (int i = 0; i < kTimes; ++i) {
        {
          const auto deferred = is_deferred ? std::optional(b.defer()) : std::nullopt;
          const auto made = is_managed ? b.try_managed(kSize) : b.try_memalloc(kSize);
        }
        if (!release()) return;
      }
      const auto after = b.manager().state().reserved_bytes;
      const auto grown = b.held() - std::min(held, b.held());
      if (before && after)
        b.expect(*after <= *before + grown + kRounding,
                 text::format("{} times {} bytes of {} memory, freed{}, flush() and trim(0)",
                              kTimes, kSize, is_managed ? "managed" : "device",
                              is_deferred ? " in a deferral" : ""),
                 text::format("{} reserved bytes, of {} before", *after, *before),
                 "about as many: what is released is not reserved");
    }
  }
}

/// Compares what a manager counts with the blocks that live.
class CountedBlocks {
 public:
  explicit CountedBlocks(Bench& bench) : b_(bench) {}
  std::vector<BenchMemory>& blocks() noexcept { return blocks_; }
  bool counts() const noexcept { return counts_; }

  /// Judges all figures now.
  void look() {
    const auto seen = b_.manager().statistics();
    std::uint64_t live = 0;
    for (const auto& block : blocks_) live += block.size();
    largest_ = std::max(largest_, blocks_.empty() ? 0 : blocks_.back().size());
    const auto figures = figures_of(seen);
    for (std::size_t i = 0; i < figures.size(); ++i) judge_peak(figures[i], most_[i]);
    judge_sums();
    if (seen.requested_bytes.current)
      b_.expect_equal(words("requested_bytes", "current"), *seen.requested_bytes.current, live);
    if (seen.allocation.current)
      b_.expect_equal(words("allocation", "current"), *seen.allocation.current, blocks_.size());
    expect_within(words("allocated_bytes", "current"), seen.allocated_bytes.current, live,
                  2 * live + blocks_.size() * kRounding);
    if (!reserving_is_seen(b_)) return;
    const auto held = b_.held();
    expect_within(words("reserved_bytes", "current"), seen.reserved_bytes.current,
                  held - std::min(held, kSlack), held + blocks_.size() * kRounding + kSlack);
  }

 private:
  static constexpr std::uint64_t kAny = ~std::uint64_t{0};  // a figure with no bound from above
  // What a block may be rounded up by, and what a manager may hold besides.
  static constexpr std::uint64_t kRounding = 2_MiB, kSlack = 8_MiB;
  struct Figure {
    std::string_view name;
    MemoryStatistics::Count count;
    std::uint64_t slack;  ///< How far a peak may lie above the highest value seen, because it may
                          ///< occur inside a request.
  };

  std::array<Figure, 7> figures_of(const MemoryStatistics& seen) const {
    return {
        Figure{"allocation", seen.allocation, 1},
        Figure{"segment", seen.segment, kAny},
        Figure{"active", seen.active, kAny},
        Figure{"allocated_bytes", seen.allocated_bytes, 2 * largest_ + kRounding},
        Figure{"reserved_bytes", seen.reserved_bytes, kAny},
        Figure{"active_bytes", seen.active_bytes, kAny},
        Figure{"requested_bytes", seen.requested_bytes, largest_},
    };
  }
  std::string words(std::string_view name, std::string_view what) const {
    return text::format("{}.all.{} of statistics(), with {} blocks alive", name, what,
                        blocks_.size());
  }
  /// Expects that allocated minus freed is current.
  void judge_sums() {
    const auto adds_up = [](const MemoryStatistics::Count& of) {
      return !of.current || !of.allocated || !of.freed || *of.allocated - *of.freed == *of.current;
    };
    std::optional<Figure> wrong;
    wait_until([&] {
      wrong.reset();
      for (const auto& figure : figures_of(b_.manager().statistics()))
        if (!adds_up(figure.count)) wrong = figure;
      return !wrong;
    });
    if (!wrong) return;
    b_.expect(false, words(wrong->name, "current"), text::format("{}", *wrong->count.current),
              text::format("{}, which is {} of {}.all.allocated less {} of {}.all.freed",
                           *wrong->count.allocated - *wrong->count.freed, *wrong->count.allocated,
                           wrong->name, *wrong->count.freed, wrong->name));
  }
  void expect_within(std::string_view done, std::optional<std::uint64_t> said, std::uint64_t least,
                     std::uint64_t most) {
    if (!said) return;
    counts_ = true;
    b_.expect(*said >= least && *said <= most, done, text::format("{}", *said),
              text::format("from {} to {}", least, most));
  }
  void judge_peak(const Figure& figure, std::uint64_t& most) {
    if (!figure.count.current || !figure.count.peak) return;
    counts_ = true;
    most = std::max(most, *figure.count.current);
    const auto done = words(figure.name, "peak");
    b_.expect(*figure.count.peak >= most, done, text::format("{}", *figure.count.peak),
              text::format("{} or more, as {}.all.current has been", most, figure.name));
    b_.expect(figure.slack == kAny || *figure.count.peak <= most + figure.slack, done,
              text::format("{}", *figure.count.peak),
              text::format("about {}, which is the most that {}.all.current has been", most,
                           figure.name));
  }

  Bench& b_;
  std::vector<BenchMemory> blocks_;
  std::array<std::uint64_t, 7> most_{};
  std::uint64_t largest_ = 0;
  bool counts_ = false;
};

/// Answers whether the driver holds anything for the manager that is or may contain device memory.
bool holds_memory(Bench& b) {
  for (const auto kind :
       {CallLedger::Kind::device, CallLedger::Kind::managed, CallLedger::Kind::reservation,
        CallLedger::Kind::physical, CallLedger::Kind::mapping, CallLedger::Kind::pool})
    if (b.watch().ledger().live(kind).count != 0) return true;
  return false;
}

/// Expects that no segment is counted when nothing is held.
void trim_and_look(Bench& b, CountedBlocks& counted) {
  if (!b.manager().trim(0)) return;
  counted.look();
  if (!reserving_is_seen(b) || holds_memory(b)) return;
  const auto segments = [&] { return b.manager().statistics().segment.current.value_or(0); };
  b.expect(wait_until([&] { return segments() == 0; }),
           "segment.all.current of statistics(), after trim(0) has released all memory",
           text::format("{}", segments()), "0");
}

/// Expects num_ooms not to count a request that is served although the driver refused one of its
/// calls.
void judge_ooms(Bench& b) {
  const auto ooms = [&b] { return b.manager().statistics().num_ooms; };
  if (!ooms()) return;
  std::vector<BenchMemory> blocks;
  for (const auto call : {Call::mem_alloc, Call::mem_create, Call::runtime_malloc}) {
    for (const auto size : {100'000 * std::uint64_t{1}, 3_MiB, 24_MiB}) {
      const auto before = *ooms();
      b.watch().fail(call, {2});
      auto block = b.try_memalloc(size);
      b.watch().fail(call, {});
      const auto refused = block ? 0u : 1u;
      b.expect(ooms().value_or(before) <= before + refused,
               text::format("num_ooms of statistics(), after a request for {} bytes for which the "
                            "driver refuses {} once, and which is {}",
                            size, call_info(call).cuda_name, block ? "served" : "refused"),
               text::format("{}", *ooms()), text::format("{}, after {}", before + refused, before));
      if (block) blocks.push_back(*std::move(block));
    }
  }
}

/// Frees blocks of several sizes, multiples of `unit` bytes, and many small ones.
void leave_idle_blocks(Bench& b, std::uint64_t unit) {
  std::vector<BenchMemory> blocks;
  for (const auto units : {3, 3, 3, 24, 3, 9, 20, 3}) {
    auto block = b.try_memalloc(static_cast<std::uint64_t>(units) * unit);
    if (block) blocks.push_back(*std::move(block));
  }
  // This finds managers that keep nothing but small blocks.
  for (int i = 0; i < 32; ++i) {
    auto block = b.try_memalloc(unit / 4);
    if (block) blocks.push_back(*std::move(block));
  }
  blocks.clear();
  b.expect_ok("flush()", b.manager().flush());
}

/// Asks for a trim after each way in which a manager may come to hold idle memory.
void judge_trim_after_each(Bench& b) {
  judge_trim_beside_one(b);
  judge_trim_after(b, "several hundred MiB freed", leave_much_idle);
  judge_trim_after(b, "managed memory freed", leave_managed_idle);
  judge_trim_after(b, "memory freed by another thread",
                   [](Bench& on) { start_thread([&on] { leave_much_idle(on); }).join(); });
  judge_trim_after(b, "requests that the driver refused, and managed memory freed", [](Bench& on) {
    refuse_everything(on);
    leave_managed_idle(on);
  });
  if (!b.is_numba()) {  // there device memory survives a reset: RST-5
    judge_trim_after(b, "a reset of what was alive", leave_to_a_reset);
    judge_trim_after(b, "a reset, and small blocks freed by another thread", [](Bench& on) {
      on.reset();
      start_thread([&on] {
        std::vector<BenchMemory> blocks;
        for (int i = 0; i < 6; ++i)
          for (const auto size : {600_KiB, 20_KiB})
            if (auto block = on.try_memalloc(size)) blocks.push_back(*std::move(block));
      }).join();
    });
  }
  judge_trim_after(b, "memory of two streams, each of which freed some of the other's",
                   leave_idle_of_two_streams);
  for (const std::uint64_t least : {26, 90})
    judge_trim_after(b, "many blocks freed", [&](Bench& on) { leave_many_idle(on, least); });
  judge_trim_after(b, "a request for whose order the driver refused every wait",
                   leave_idle_after_refused_waits);
  judge_trim_after(b, "a trim whose waits the driver refused", [](Bench& on) {
    leave_idle_after_a_refused_wait(
        on, [](Bench& o) { static_cast<void>(o.manager().trim(0).has_value()); });
  });
  judge_trim_after(b, "a refused request whose waits the driver refused", [](Bench& on) {
    leave_idle_after_a_refused_wait(on, [](Bench& o) {
      const auto info = o.device().mem_get_info();
      if (info && o.try_memalloc(info->free + 2_MiB)) return;
    });
  });
}

constexpr Clause kAccountsClauses[] = {
    {.id = "accounts/balance",
     .rule = "After every operation, and the manager's end, all that came from the device is back, "
             "once.",
     .source = "what a manager is for",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* accounts/every_call_failed accounts/refused_frees suite/fill "
                      "accounts/host_heap accounts/trim errors/frees_told",
     .check =
         [](Bench& b) {
           const auto failed = use_everything(b);
           b.reset();
           if (b.is_numba()) b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees before the first reset that the observer heard to have failed",
                          failed, 0u);
           b.expect_balance("every operation, a reset, the manager's end");
         }},

    {.id = "accounts/calls",
     .rule = "The driver refuses no call of a manager, beside requests that are out of memory.",
     .source = "CUDA: an invalid call is a mistake of its caller",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* DEV-9 MAN-3 PD-15 PD-18 OBJ-1",
     .check =
         [](Bench& b) {
           for (int i = 0; i < 3 && !b.decided(); ++i) use_everything(b);
           const auto refused = b.watch().first_uninvited();
           b.expect(!refused, "every operation, three times", refused ? to_text(*refused) : "",
                    "calls that the driver makes");
         }},

    {.id = "accounts/reserved",
     .rule =
         "What a manager says is reserved is what it holds from the device; the largest request "
         "that it says to need nothing from the device needs nothing.",
     .source = "emm_plugin.h, emm_state; emm/memory_manager.hpp",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           constexpr auto kRounding = 2_MiB;
           b.expect(true, {}, {}, {});
           if (!b.manager().state().reserved_bytes)
             return b.not_applicable("this manager does not say what is reserved");
           b.apart(judge_reserved_in_pools);
           if (b.decided()) return;
           const auto unit = std::min<std::uint64_t>(b.affordable(160_MiB) / 4, 40_MiB);
           std::vector<BenchMemory> blocks;
           std::uint64_t live = 0;
           const auto look = [&](std::string_view when) {
             const auto state = b.manager().state();
             const auto said = *state.reserved_bytes;
             const auto rounded = b.held() + (blocks.size() + 4) * kRounding;
             const auto largest = state.largest_free_bytes.value_or(0);
             b.expect(largest <= said || !reserving_is_seen(b),
                      text::format("largest_free_bytes {}", when), text::format("{}", largest),
                      text::format("{} or less, which is reserved", said));
             b.expect(said >= live && (!reserving_is_seen(b) || said <= rounded),
                      text::format("reserved bytes {}", when), text::format("{}", said),
                      text::format("from {} to {}", live, rounded));
           };
           for (const auto size : {std::uint64_t{1000}, 3_MiB, unit, 70_KiB, unit / 2}) {
             auto block = b.memalloc(size);
             if (b.decided()) return;
             live += size;
             blocks.push_back(std::move(block));
             look("with memory alive");
           }
           {
             // Many small blocks, each of which may take a device page.
             std::vector<BenchMemory> small;
             while (small.size() < 40) {
               auto block = b.try_memalloc(1000);
               if (!block) break;
               small.push_back(*std::move(block));
             }
             const auto said = b.manager().state().reserved_bytes.value_or(0);
             constexpr auto kSlack = 32_MiB;
             if (reserving_is_seen(b))
               b.expect(
                   said + kSlack >= b.held(),
                   text::format("reserved bytes with {} blocks of 1000 bytes more", small.size()),
                   text::format("{}", said),
                   text::format("about {}, which the manager holds from the device", b.held()));
           }
           while (blocks.size() > 1) {
             live -= blocks[1].size();
             blocks.erase(blocks.begin() + 1);
             look("after some was freed");
           }
           {
             // Idle memory in several pieces, so that the largest piece is less than all free
             // memory.
             std::vector<BenchMemory> pieces;
             for (int i = 0; i < 6; ++i) {
               if (auto block = b.try_memalloc(unit / 16 + 512_KiB))
                 pieces.push_back(*std::move(block));
             }
           }
           b.expect_ok("flush()", b.manager().flush());
           judge_largest(b, 6);
           for (const auto size : {64_KiB, 700_KiB, 3_MiB}) judge_largest_among_holes(b, size);
           {
             // The rest of a large idle piece, of which more than half is alive. There is room for
             // as much again: a manager that uses memory for one size alone need not release it.
             const auto whole = b.affordable(200_MiB) / 2;
             { const auto idle = b.try_memalloc(whole); }
             b.expect_ok("flush()", b.manager().flush());
             const auto part = b.try_memalloc(whole / 5 * 3);
             judge_largest(b, 2);
           }
           {
             const auto deferred = b.defer();
             { const std::array idle{b.try_memalloc(3_MiB), b.try_memalloc(unit)}; }
             judge_largest(b, 2);
           }
           if (b.watch().total() != 0) judge_largest_while_work_is_pending(b);
           for (const auto size : {64_KiB, 1_MiB, 3_MiB}) {
             if (!b.manager().state().largest_free_bytes || b.watch().total() == 0) break;
             b.memalloc(size).drop();
             b.expect_ok("flush()", b.manager().flush());
             const auto said = *b.manager().state().largest_free_bytes;
             b.watch().forget();
             const auto block = b.try_memalloc(size);
             const auto asked = b.count(Call::mem_alloc) + b.count(Call::mem_create) +
                                b.count(Call::runtime_malloc) + b.count(Call::mem_alloc_async) +
                                b.count(Call::mem_alloc_from_pool_async);
             b.expect(
                 !block || asked != 0 || said >= size,
                 text::format("a request for {} bytes, which needs nothing of the device", size),
                 text::format("largest_free_bytes was {}", said), text::format("{} or more", size));
           }
           blocks.clear();
           live = 0;
           b.expect_ok("flush()", b.manager().flush());
           // What a manager works out now must not be its answer after the trim.
           static_cast<void>(b.manager().state());
           if (b.manager().trim(0)) look("after all was freed, flush() and trim(0)");
           for (int i = 0; i < 12; ++i) {
             const auto info = b.device().mem_get_info();
             if (info && b.try_memalloc(info->free + 2_MiB)) return;
           }
           b.expect_ok("flush()", b.manager().flush());
           look("after twelve requests for more than there is");
           judge_largest_with_a_past(b);
           if (!b.decided()) b.apart(judge_reserved_after_refused_frees);
           if (!b.decided()) b.apart(judge_reserved_of_released);
         }},

    {.id = "accounts/pending",
     .rule = "What a manager says is pending are the frees that it has not made, with their bytes; "
             "and what it tells of frees that wait and are made adds up.",
     .source = "emm_plugin.h, emm_state, pending_added and flushed",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "PD-1 PD-9 PD-16 deferral/nothing_lost",
     .check =
         [](Bench& b) {
           b.manager();
           if (!b.manager().state().pending_count)
             return b.not_applicable("this manager does not say what is pending");
           b.expect(true, {}, {}, {});
           const bool elsewhere = probe_frees_elsewhere(b);
           for (int round = 0; round < 2; ++round) {
             for (const auto& kind : kPendingKinds) judge_pending(b, kind, elsewhere);
           }
           for (const auto& kind : kExactPendingKinds) judge_pending(b, kind, elsewhere);
           for (const auto& kind : std::span(kPendingKinds).first(3)) judge_named_call(b, kind);
           {
             const auto deferred = b.defer();
             for (int i = 0; i < 24; ++i) {
               if (const auto block = b.try_managed(4_KiB)) continue;
             }
           }
           free_odd_sizes(b);
           b.expect_ok("flush()", b.manager().flush());
           judge_told(b, elsewhere);
           if (!b.decided()) judge_many_pending(b);
           if (!b.decided()) judge_flush_of_pending_work(b);
           if (!b.decided()) judge_pending_of_others(b);
           if (!b.decided()) b.apart(judge_own_thread);
           if (b.is_numba()) return;
           for (const auto& kind : kPendingKinds)
             if (const auto block = kind.make(b, kind.size)) continue;
           b.reset();
           expect_no_pending_bytes(b, "frees that wait, then reset()");
         }},

    {.id = "accounts/trim",
     .rule = "trim(keep) releases idle memory until no more than that is held, and takes nothing "
             "that is alive.",
     .source = "emm_plugin.h, trim; emm/memory_manager.hpp",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           const auto unit =
               std::min<std::uint64_t>(b.affordable(80_MiB) / 80, 1_MiB) & ~(64_KiB - 1);
           auto kept = b.memalloc(64_KiB);
           if (b.decided()) return;
           b.fill(kept, 0x37);
           b.expect(true, {}, {}, {});
           const auto leave_idle = [&] { leave_idle_blocks(b, unit); };
           leave_idle();
           const auto idle = b.held();
           const auto first = b.manager().trim(0);
           if (!first && first.error().code == Errc::not_supported)
             return b.not_applicable(describe(first.error()));
           if (!reserving_is_seen(b)) return b.apart(judge_trim_of_pools);
           // Models of libraries that never release memory release nothing here.
           if (b.held() == idle && (!b.subject().has_trim || b.refuses_early()))
             return b.not_applicable("this manager releases nothing where it is told to trim");
           if (b.held() == idle) {
             // The allocation that a live block was cut from cannot be released.
             kept.drop();
             b.expect_ok("flush()", b.manager().flush());
             b.expect_ok("trim(0)", b.manager().trim(0));
             b.expect(b.held() == 0, "trim(0), with nothing alive",
                      text::format("{} bytes of the device are held", b.held()), "0");
             judge_trim_after(b, "managed memory freed", leave_managed_idle);
             if (!b.is_numba())  // there device memory survives a reset: RST-5
               judge_trim_after(b, "a reset of what was alive", leave_to_a_reset);
             return judge_trim_beside_live(b);
           }
           const auto judge_keep = [&](std::uint64_t keep, std::string_view past) {
             leave_idle();
             const auto done = text::format("trim({}){}", keep, past);
             b.expect_ok(done, b.manager().trim(keep));
             b.expect(b.holds(kept, 0x37), done, "memory that is alive has other content",
                      "it is as it was");
             // The allocation that a live block was cut from cannot be released.
             kept.drop();
             b.expect_ok("flush()", b.manager().flush());
             b.expect_ok(done, b.manager().trim(keep));
             const bool fits = b.held() <= keep;
             const auto seen = text::format("{} bytes of the device are held", b.held());
             b.expect(fits, text::format("{}, with nothing alive", done), told_held(b, keep, seen),
                      text::format("{} or less", keep));
             kept = b.memalloc(64_KiB);
             b.fill(kept, 0x37);
           };
           for (const auto keep : {40 * unit, 12 * unit, 5 * unit, std::uint64_t{0}})
             judge_keep(keep, "");
           if (!b.is_numba()) {  // there device memory survives a reset: RST-5
             refuse_everything(b);
             b.reset();
             kept = b.memalloc(64_KiB);
             b.fill(kept, 0x37);
             for (const auto keep : {40 * unit, 12 * unit, 5 * unit})
               judge_keep(keep, " after refused requests and a reset");
           }
           judge_trim_after_each(b);
           judge_trim_beside_live(b);
         }},

    {.id = "accounts/host_heap",
     .rule = "However long it serves, a manager's own host memory does not grow.",
     .source = "what a manager is for",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",  // memory that is not ended often leaves its record behind
     .check = check_heap},

    {.id = "accounts/live_bytes",
     .rule = "What a manager says is live is what was handed out and has not ended.",
     .source = "emm/memory_manager.hpp",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "reset/ends_all threads/accounts",
     .check =
         [](Bench& b) {
           b.manager();
           if (!b.manager().state().live_bytes)
             return b.not_applicable("this manager does not say what is live");
           auto first = b.any(1000);
           const auto second = b.managed(24);
           b.expect_equal("live bytes of blocks of 1000 and 24", *b.manager().state().live_bytes,
                          1024u);
           first.drop();
           b.expect_equal("live bytes after the first ended", *b.manager().state().live_bytes, 24u);
           b.reset();
           b.expect_equal("live bytes after reset", *b.manager().state().live_bytes, 0u);
         }},

    {.id = "accounts/peaks",
     .rule = "What a manager counts is what it holds and has handed out; a peak is the most that "
             "there has been.",
     .source = "emm/memory_statistics.hpp; PyTorch, memory_stats",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           b.manager();
           CountedBlocks counted(b);
           auto& blocks = counted.blocks();
           for (std::uint64_t i = 0; i < 60 && !b.decided(); ++i) {
             if (auto block = b.try_memalloc((i % 5 + 1) * 100'000))
               blocks.push_back(*std::move(block));
             if (i % 6 == 5) blocks.resize(blocks.size() / 2);
             if (i == 41) {  // less is alive than there has been
               for (const auto size : {std::uint64_t{1} << 40, std::uint64_t{1} << 61})
                 if (const auto refused = b.try_memalloc(size)) continue;
             }
             counted.look();
           }
           // Much memory is held and little of it is live.
           const auto large = b.affordable(120_MiB) / 5;
           for (int i = 0; i < 3; ++i) {
             if (auto block = b.try_memalloc(large)) blocks.push_back(*std::move(block));
             counted.look();
           }
           while (!blocks.empty() && !b.decided()) {
             blocks.pop_back();
             b.expect_ok("flush()", b.manager().flush());
             counted.look();
           }
           if (counted.counts()) {
             trim_and_look(b, counted);
             b.expect_ok("initialize(), once more", b.manager().initialize());
             counted.look();
             if (!b.decided()) b.apart(judge_ooms);
             if (!b.decided()) b.apart(judge_peaks_of_refused);
           }
           if (!counted.counts()) b.not_applicable("this manager counts no peaks");
         }},

    {.id = "accounts/every_call_failed",
     .rule = "Whichever driver call fails, nothing is leaked and nothing ended twice.",
     .source = "emm/memory_manager.hpp: a call that fails changes nothing",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("numba leaks where a call fails, by its quirks");
           fail_in_turn(b, false, 2);
           fail_in_turn(b, false, 700);
           for (const auto native : {2, 700}) fail_initialize_in_turn(b, native);
         }},

    {.id = "accounts/refused_frees",
     .rule = "A free that the driver refuses ends nothing but itself.",
     .source = "emm/memory_manager.hpp",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "ERR-2",
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("numba leaks where a call fails, by its quirks");
           fail_in_turn(b, true, 700);
           if (!b.decided()) refuse_one_of_several(b);
         }},

    {.id = "accounts/reset_gives_back",
     .rule = "What reset ended can be had again.",
     .source = "emm/memory_manager.hpp; NBEP 7, reset",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("as Numba, a plugin's device memory survives a reset: RST-5");
           b.leave_on_device(80_MiB);  // 48 MiB may lie in two slabs of 32
           const auto held = b.memalloc(48_MiB);
           if (b.decided()) return;
           b.reset();
           b.expect_ok("flush()", b.manager().flush());
           const auto again = b.try_memalloc(48_MiB);
           if (!b.expect_ok("48 of 80 MiB, after a reset of 48", again)) return;
           auto deferred = b.defer();
           b.reset();
           deferred.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_ok("48 of 80 MiB, after a reset of 48 inside a deferral that has ended",
                       b.try_memalloc(48_MiB));
         }},

    {.id = "accounts/out_of_memory_deferred",
     .rule = "Memory that runs out inside nested deferrals costs nothing but the request.",
     .source = "NBEP 7, defer_cleanup; numba#2046",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto kept = b.any(1_MiB);
           b.fill(kept, 0x42);
           b.leave_on_device(64_MiB);
           {
             const auto outer = b.defer();
             b.any(40_MiB).drop();
             const auto inner = b.defer();
             b.any(1_MiB).drop();
             const auto refused = b.try_memalloc(100_MiB);
             if (!refused && refused.error().code != Errc::not_supported) {
               b.expect_out_of_memory("a request for more than is left, inside two deferrals",
                                      refused, 100_MiB);
             }
             b.expect(b.holds(kept, 0x42), "a request for more than is left, inside two deferrals",
                      "other memory is lost", "it is as it was");
           }
           b.expect_ok("flush()", b.manager().flush());
           auto next = b.any(32_MiB);
           b.expect(b.fill(next, 1), "32 of 64 MiB after the deferrals", "no memory", "memory");
           next.drop();
           b.expect(b.holds(kept, 0x42), "everything after", "the first block is lost",
                    "it is as it was");
         }},
};

}  // namespace

extern constinit const ClauseGroup accounts_clauses{"Beyond the catalogue: accounts",
                                                    kAccountsClauses};

}  // namespace emm
