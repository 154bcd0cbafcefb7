#include <malloc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: what was taken from the device is released, whatever fails.

namespace emm {
namespace {

using namespace emm::conformance;

/// Every operation, with what ends early, late, twice and never.
/// Answers how many frees failed before the reset. After it a manager may refuse what ends late.
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
    // Memory that is out, so that the manager makes room.
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

std::uint64_t refused_ends(Bench& b) {
  std::uint64_t count = 0;
  for (const auto& event : b.watch().events())
    count += is_end(event.call) && event.native != 0 ? 1u : 0u;
  return count;
}

/// Fails each call that ends nothing, or each that does, in turn, on a device of its own each time.
void fail_in_turn(Bench& b, bool of_ends, std::int32_t native) {
  constexpr std::uint64_t kMost = 300;
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
    const auto flushed = trial.manager().flush();
    const auto live = trial.manager().state().live_bytes;
    trial.end_manager();
    if (trial.watch().total() == 0)
      return b.inconclusive("the driver calls of this manager are not seen here");
    const auto done = text::format("every operation, driver call {} failing with {}", n, native);
    const auto& ledger = trial.watch().ledger();
    b.expect(owed(trial) <= refused_ends(trial), done, ledger.verdict(),
             "only what the driver refused to take back is left");
    b.expect(ledger.double_ends() == 0 && ledger.foreign_ends() == 0, done, ledger.verdict(),
             "each thing ended once");
    b.expect_rule("accounts/live_bytes", live.value_or(0) == 0,
                  text::format("{}; then all ended", done),
                  text::format("live bytes {}", live.value_or(0)), "0");
    if (!reached) return;
  }
}

/// Whether the calls that reserve memory are seen: what the driver's own pools reserve is not.
bool reserving_is_seen(Bench& b) {
  const auto& ledger = b.watch().ledger();
  return b.watch().total() != 0 && ledger.calls(Call::mem_alloc_async).made +
                                           ledger.calls(Call::mem_alloc_from_pool_async).made ==
                                       0;
}

// Frees that wait.

struct PendingKind {
  std::string_view name;
  std::uint64_t size;
  Result<BenchMemory> (*make)(Bench& b, std::uint64_t size);
};

constexpr PendingKind kPendingKinds[] = {
    {"managed memory", 300'000, [](Bench& b, std::uint64_t size) { return b.try_managed(size); }},
    {"mapped memory", 70'000,
     [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {.mapped = true}); }},
    {"pinned memory", 5'000, [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {}); }},
    {"device memory", 24_MiB, [](Bench& b, std::uint64_t size) { return b.try_memalloc(size); }},
};

/// One free of a kind, from where it waits to where it is made.
void judge_pending(Bench& b, const PendingKind& kind) {
  constexpr auto kRounding = 2_MiB;
  auto block = kind.make(b, kind.size);
  b.expect_ok("flush()", b.manager().flush());
  const auto before = b.manager().state();
  const auto added_before = b.observer().added().size();
  if (!block || !before.pending_count) return;
  const auto address = block->address();
  block->drop();
  const auto after = b.manager().state();
  if (!after.pending_count) return;
  if (*after.pending_count == *before.pending_count) {
    // It was made, or it is counted.
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
    // Frees without a size count none: HST-8.
    b.expect(bytes == 0 || (bytes >= kind.size && bytes <= 2 * kind.size + kRounding),
             text::format("{}: pending_bytes", done), text::format("{} more", bytes),
             text::format("{} more, or somewhat above where sizes are rounded", kind.size));
  }
  const auto added = b.observer().added();
  b.watch().forget();
  b.expect_ok("flush()", b.manager().flush());
  const auto end = b.manager().state();
  if (end.pending_count && end.pending_bytes && *end.pending_count == 0)
    b.expect_equal(text::format("{}; then flush(): pending_bytes, with no free pending", done),
                   *end.pending_bytes, 0u);
  if (added.size() != added_before + 1) return;
  b.expect(b.count(added.back().first) != 0, text::format("{}; then flush()", done),
           text::format("pending_added() said {}, and it is not called",
                        call_info(added.back().first).name),
           "the driver call that pending_added() named");
}

/// What the host was told adds up.
void judge_told(Bench& b) {
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

/// Many frees that wait at once are as many as the host was told of.
void judge_many_pending(Bench& b) {
  b.expect_ok("flush()", b.manager().flush());
  const auto before = b.manager().state().pending_count.value_or(0);
  b.observer().forget();
  const auto deferred = b.defer();
  for (int i = 0; i < 14; ++i) {
    for (const auto& kind : kPendingKinds)
      if (const auto block = kind.make(b, std::min(kind.size, 2_MiB + 512))) continue;
  }
  const auto pending = b.manager().state().pending_count;
  std::uint64_t waiting = before + b.observer().added().size();
  for (const auto& flush : b.observer().flushes())
    waiting -= std::min<std::uint64_t>(waiting, flush.count);
  b.expect(!pending || *pending >= waiting, "56 frees inside a deferral",
           text::format("pending_count {}", pending.value_or(0)),
           text::format("{} or more, by what pending_added() and flushed() told", waiting));
}

/// Frees of another manager of the same library are that one's.
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

/// A flush makes every free that waits, also where its work has not ended.
void judge_flush_of_pending_work(Bench& b) {
  b.expect_ok("flush()", b.manager().flush());
  const auto stream = b.stream();
  for (const auto size : {64_KiB, 5_MiB}) {
    auto block = b.try_memalloc(size, stream);
    if (!block || !b.device().memset_d8_async(block->device(), 1, size, stream)) return;
    const auto before = b.manager().state().pending_count.value_or(0);
    if (!block->free(stream) || b.manager().state().pending_count.value_or(0) == before) continue;
    b.expect_ok("flush()", b.manager().flush());
    const auto after = b.manager().state().pending_count.value_or(0);
    b.expect(after <= before,
             text::format(
                 "{} bytes freed on a stream that has work, whose free waits; then flush()", size),
             text::format("pending_count {}", after), text::format("{}", before));
  }
}

/// One block alone in whatever it was cut from, and a trim.
void judge_trim_beside_one(Bench& b) {
  for (const auto size : {std::uint64_t{1}, std::uint64_t{512}, 4_KiB, 300_KiB, 3_MiB}) {
    auto fresh = Bench::create(b.subject(), b.clause());
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& on = **fresh;
    on.untraceable();
    on.expect(true, {}, {}, {});
    const auto kept = on.try_memalloc(size);
    if (kept && on.fill(*kept, 0x39) && on.manager().trim(0)) {
      const auto next = on.try_memalloc(size);
      if (next) on.fill(*next, 0x3a);
      on.expect(on.holds(*kept, 0x39), text::format("trim(0) with {} bytes alive", size),
                "they have other content, or are the device's again", "they are as they were");
    }
    b.take(on);
    if (b.decided()) return;
  }
}

// Host memory of the manager's own.

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
std::uint64_t heap_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}
#else
std::uint64_t heap_in_use() { return 0; }
#endif

/// Does `act` thousands of times, and looks at how much more of the heap is in use each time.
void judge_heap(Bench& b, std::string_view done, const std::function<void()>& act,
                int times = 1200) {
  const int first = times / 6;
  // Less than a record takes. Where a thread of the manager's falls behind, the ledger learns of a
  // few more addresses.
  constexpr std::uint64_t kLeast = 48;
  // What the device and the ledger remember of each handle, which is another one each time.
  constexpr std::uint64_t kOfHandle = 160;
  if (b.decided()) return;
  bool trims = false;
  const auto repeat = [&](int count) {
    for (int i = 0; i < count; ++i) {
      act();
      b.watch().forget();
      b.observer().forget();
    }
    b.expect_ok("flush()", b.manager().flush());  // a thread of the manager's catches up
    if (trims) b.expect_ok("trim(0)", b.manager().trim(0));
    b.watch().forget();
    b.observer().forget();
  };
  const auto handles = [&] {
    std::uint64_t count = 0;
    for (const auto call : {Call::mem_create, Call::event_create, Call::mem_address_reserve})
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
  // Records of idle memory that the manager keeps go with that memory.
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

void check_heap(Bench& b) {
  if (!b.is_simulated())
    return b.not_applicable("a real driver's own host memory would be looked at with it");
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

/// A block whose work has not ended, freed. Its bytes serve at once, to its own stream or to any,
/// or they are not in the largest request that needs nothing from the device.
void judge_largest_while_work_is_pending(Bench& b) {
  constexpr std::int32_t kNotReady = 600;
  constexpr auto kSize = 24_MiB;
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

constexpr Clause kAccountsClauses[] = {
    {.id = "accounts/balance",
     .rule = "After every operation, and the manager's end, all that came from the device is back, "
             "once.",
     .source = "what a manager is for",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* accounts/every_call_failed accounts/refused_frees",
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
           const auto unit = std::min<std::uint64_t>(b.affordable(160_MiB) / 4, 40_MiB);
           std::vector<BenchMemory> blocks;
           std::uint64_t live = 0;
           const auto look = [&](std::string_view when) {
             const auto said = *b.manager().state().reserved_bytes;
             const auto rounded = b.held() + (blocks.size() + 4) * kRounding;
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
             // Many small ones, each of which may take a page of the device.
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
             // Idle memory in several pieces: what is the largest is not what is free in all.
             std::vector<BenchMemory> pieces;
             for (int i = 0; i < 6; ++i) {
               if (auto block = b.try_memalloc(unit / 16 + 512_KiB))
                 pieces.push_back(*std::move(block));
             }
           }
           b.expect_ok("flush()", b.manager().flush());
           std::vector<BenchMemory> taken;  // so that the next largest is another one
           for (int i = 0; i < 6 && b.watch().total() != 0; ++i) {
             const auto largest = b.manager().state().largest_free_bytes.value_or(0);
             if (largest <= 1_KiB) break;
             b.watch().forget();
             const auto rounded = largest - largest / 4;  // sizes may be rounded up
             auto block = b.try_memalloc(rounded);
             const auto from_device = [&] {
               return b.count(Call::mem_alloc) + b.count(Call::mem_create) +
                      b.count(Call::runtime_malloc);
             };
             bool needs_nothing = block && from_device() == 0;
             if (block && from_device() != 0) {
               // A manager with classes of sizes has memory for the largest alone.
               const auto asked = from_device();
               const auto grown = b.watch().events();
               const auto exact = b.try_memalloc(largest);
               needs_nothing =
                   exact && from_device() == asked && b.count(Call::mem_create) == 0 &&
                   std::none_of(grown.begin(), grown.end(), [&](const CallEvent& event) {
                     const auto at = exact->address();
                     return at >= event.result && at < event.result + event.size;
                   });
             }
             b.expect(needs_nothing,
                      text::format("a request for {} bytes, where largest_free_bytes is {}",
                                   rounded, largest),
                      block ? "the driver is asked for memory" : describe(block.error()),
                      "memory that the manager has");
             if (block) taken.push_back(*std::move(block));
           }
           taken.clear();
           b.expect_ok("flush()", b.manager().flush());
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
           if (b.manager().trim(0)) look("after all was freed, flush() and trim(0)");
           for (int i = 0; i < 12; ++i) {
             const auto info = b.device().mem_get_info();
             if (info && b.try_memalloc(info->free + 2_MiB)) return;
           }
           b.expect_ok("flush()", b.manager().flush());
           look("after twelve requests for more than there is");
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
           for (int round = 0; round < 2; ++round) {
             for (const auto& kind : kPendingKinds) judge_pending(b, kind);
           }
           {
             const auto deferred = b.defer();
             for (int i = 0; i < 24; ++i) {
               if (const auto block = b.try_managed(4_KiB)) continue;
             }
           }
           b.expect_ok("flush()", b.manager().flush());
           judge_told(b);
           if (!b.decided()) judge_many_pending(b);
           if (!b.decided()) judge_flush_of_pending_work(b);
           if (!b.decided()) judge_pending_of_others(b);
           if (b.is_numba()) return;
           for (const auto& kind : kPendingKinds)
             if (const auto block = kind.make(b, kind.size)) continue;
           b.reset();
           const auto after = b.manager().state();
           if (after.pending_count == 0 && after.pending_bytes)
             b.expect_equal("frees that wait, then reset(): pending_bytes, with no free pending",
                            *after.pending_bytes, 0u);
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
           const auto leave_idle = [&] {
             std::vector<BenchMemory> blocks;
             for (const auto units : {3, 3, 3, 24, 3, 9, 20, 3}) {
               auto block = b.try_memalloc(static_cast<std::uint64_t>(units) * unit);
               if (block) blocks.push_back(*std::move(block));
             }
             // This finds managers that keep nothing but small memory.
             for (int i = 0; i < 32; ++i) {
               auto block = b.try_memalloc(unit / 4);
               if (block) blocks.push_back(*std::move(block));
             }
             blocks.clear();
             b.expect_ok("flush()", b.manager().flush());
           };
           leave_idle();
           const auto idle = b.held();
           const auto first = b.manager().trim(0);
           if (!first && first.error().code == Errc::not_supported)
             return b.not_applicable(describe(first.error()));
           if (!reserving_is_seen(b))
             return b.not_applicable("what this manager holds is not seen");
           // The models of libraries that keep all that they ever held release nothing.
           if (b.held() == idle && (!b.subject().has_trim || b.refuses_early()))
             return b.not_applicable("this manager releases nothing where it is told to trim");
           if (b.held() == idle) {
             // What a block that is alive is cut from cannot be released.
             kept.drop();
             b.expect_ok("flush()", b.manager().flush());
             b.expect_ok("trim(0)", b.manager().trim(0));
             b.expect(b.held() == 0, "trim(0), with nothing alive",
                      text::format("{} bytes of the device are held", b.held()), "0");
             return;
           }
           for (const auto keep : {40 * unit, 12 * unit, 5 * unit, std::uint64_t{0}}) {
             leave_idle();
             const auto done = text::format("trim({})", keep);
             b.expect_ok(done, b.manager().trim(keep));
             b.expect(b.holds(kept, 0x37), done, "memory that is alive has other content",
                      "it is as it was");
             // What a block that is alive is cut from cannot be released.
             kept.drop();
             b.expect_ok("flush()", b.manager().flush());
             b.expect_ok(done, b.manager().trim(keep));
             b.expect(b.held() <= keep, text::format("{}, with nothing alive", done),
                      text::format("{} bytes of the device are held", b.held()),
                      text::format("{} or less", keep));
             kept = b.memalloc(64_KiB);
             b.fill(kept, 0x37);
           }
           judge_trim_beside_one(b);
         }},

    {.id = "accounts/host_heap",
     .rule = "However long it serves, a manager's own host memory does not grow.",
     .source = "what a manager is for",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",  // what is not ended often leaves its record behind
     .check = check_heap},

    {.id = "accounts/live_bytes",
     .rule = "What a manager says is live is what was handed out and has not ended.",
     .source = "emm/memory_manager.hpp",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "reset/ends_all",
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
     .rule = "A peak that a manager counts is never below what it is the peak of.",
     .source = "emm/memory_statistics.hpp; PyTorch, memory_stats",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           b.manager();
           std::vector<BenchMemory> blocks;
           bool counts = false;
           for (std::uint64_t i = 0; i < 24 && !b.decided(); ++i) {
             if (auto block = b.try_memalloc((i % 5 + 1) * 100'000))
               blocks.push_back(*std::move(block));
             if (i % 6 == 5) blocks.resize(blocks.size() / 2);
             const auto seen = b.manager().statistics();
             for (const auto& [name, count] : {std::pair{"allocation", seen.allocation},
                                               {"segment", seen.segment},
                                               {"active", seen.active},
                                               {"allocated_bytes", seen.allocated_bytes},
                                               {"reserved_bytes", seen.reserved_bytes},
                                               {"active_bytes", seen.active_bytes},
                                               {"requested_bytes", seen.requested_bytes}}) {
               if (!count.current || !count.peak) continue;
               counts = true;
               b.expect(
                   *count.peak >= *count.current,
                   text::format("{}.all.peak of statistics(), with {} blocks alive", name,
                                blocks.size()),
                   text::format("{}, and {}.all.current is {}", *count.peak, name, *count.current),
                   "as much, or more");
             }
           }
           if (!counts) b.not_applicable("this manager counts no peaks");
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
               b.expect_error("a request for more than is left, inside two deferrals", refused,
                              Errc::out_of_memory);
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
