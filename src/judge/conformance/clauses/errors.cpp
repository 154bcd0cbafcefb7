#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/host_memory.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "conformance/bench.hpp"
#include "conformance/interrupted_threads.hpp"
#include "driver/call.hpp"
#include "emm/memory_statistics.hpp"
#include "plugin/driver_table.hpp"
#include "plugin/imported_manager.hpp"
#include "plugin/plugin.hpp"
#include "plugin/running_call.hpp"

// Beyond the catalogue: what a manager answers when something goes wrong, and the parts of
// emm_plugin.h that no other clause covers: texts, numbers, options, sizes of 0.

namespace emm {
namespace {

using namespace emm::conformance;

/// Returns "CUDA_ERROR_ILLEGAL_ADDRESS (700)".
std::string code(std::int32_t native) {
  return text::format("{} ({})", native_name(native), native);
}

/// A request of some kind, or a query. `make` returns its error, or nothing if it succeeds.
struct Request {
  std::string_view words;
  std::uint64_t size;  ///< 0: it is a query.
  std::optional<Error> (*make)(Bench& b);
};

template <class T>
std::optional<Error> error_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error());
}

bool offers_hosted(MemoryManager& manager) { return manager.memhostalloc(64, {}).has_value(); }
bool offers_managed(MemoryManager& manager) {
  return manager.memallocmanaged(64, AttachFlags::global).has_value();
}

constexpr Request kRequests[] = {
    {"memalloc(100)", 100, [](Bench& b) { return error_of(b.try_memalloc(100)); }},
    {"memalloc(3 MiB)", 3_MiB, [](Bench& b) { return error_of(b.try_memalloc(3_MiB)); }},
    {"memalloc(40 MiB)", 40_MiB, [](Bench& b) { return error_of(b.try_memalloc(40_MiB)); }},
    {"memhostalloc(4096)", 4_KiB, [](Bench& b) { return error_of(b.try_hosted(4_KiB, {})); }},
    {"memhostalloc(4096, mapped)", 4_KiB,
     [](Bench& b) { return error_of(b.try_hosted(4_KiB, {.mapped = true})); }},
    {"mempin(4096)", 4_KiB, [](Bench& b) { return error_of(b.try_pin(b.buffer())); }},
    {"mempin(4096, mapped)", 4_KiB,
     [](Bench& b) { return error_of(b.try_pin(b.buffer(), {.mapped = true})); }},
    {"get_memory_info()", 0, [](Bench& b) { return error_of(b.manager().get_memory_info()); }},
    {"get_ipc_handle", 0, nullptr},  // of live memory
    {"memallocmanaged(4096)", 4_KiB, [](Bench& b) { return error_of(b.try_managed(4_KiB)); }},
};

/// Makes each request of a new manager while every driver call returns `native`, and passes the
/// error to `judge`. Afterwards the same request must be served.
template <class Judge>
void with_failing_driver(Bench& b, std::int32_t native, Judge judge) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  for (const auto& request : kRequests) {
    if (b.decided()) return;
    if (b.affordable(2 * request.size) < 2 * request.size) continue;
    auto fresh = Bench::create(b.subject(), b.clause());
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& trial = **fresh;
    trial.manager();
    const auto block = trial.try_memalloc(64_KiB);
    const auto handle = [&](Bench& on) -> std::optional<Error> {
      if (!block) return std::nullopt;
      return error_of(on.manager().get_ipc_handle(block->view()));
    };
    const auto ask = [&] { return request.make != nullptr ? request.make(trial) : handle(trial); };
    trial.watch().forget();
    const auto held = trial.manager().state().reserved_bytes;
    trial.watch().fail_all(native);
    const auto error = ask();
    const auto events = trial.watch().events();
    const bool is_refused = std::any_of(events.begin(), events.end(),
                                        [&](const auto& event) { return event.native == native; });
    // What a failed request counts must not add up.
    constexpr int kMore = 30;
    for (int i = 0; i < kMore && error && is_refused; ++i) static_cast<void>(ask().has_value());
    trial.watch().fail_all(0);
    const auto done =
        text::format("{}, each driver call answering {}", request.words, code(native));
    if (error && error->code != Errc::not_supported) judge(done, *error);
    if (const auto now = trial.manager().state().reserved_bytes; held && now)
      b.expect_rule("accounts/reserved", *now <= *held, done,
                    text::format("reserved bytes {}, after {} before", *now, *held),
                    "no more than before: the driver gave nothing");
    if (!error && request.size == 0 && is_refused) b.expect(false, done, "success", code(native));
    const auto later = ask();
    if (later && later->code == Errc::out_of_memory && trial.refuses_early()) continue;
    if (later && later->code != Errc::not_supported)
      b.expect(false, text::format("{}; then once more, the driver being well", done),
               answer_of(*later), "memory");
    trial.expect(true, {}, {}, {});
    b.take(trial);
  }
}

// Every call by which a manager gets memory of any kind: any of them may be the one that it makes.
constexpr auto kAllocatingCalls = {Call::mem_alloc,         Call::runtime_malloc,
                                   Call::mem_alloc_async,   Call::mem_alloc_from_pool_async,
                                   Call::mem_alloc_managed, Call::mem_host_alloc,
                                   Call::mem_host_register, Call::mem_create};

/// Makes a request of a new manager. The allocating driver call that it needs returns out of memory
/// `tries` times, then another error, and so on. A manager may try as often as it likes. If its
/// last try ends with the other error, that is the answer.
void check_last_attempt(Bench& b, const Request& request, Call call, std::uint64_t tries) {
  b.apart([&](Bench& on) {
    on.manager();
    std::atomic<std::uint64_t> asked{0};
    on.watch().during = [&](const CallEvent& event) {
      if (event.call != call) return;
      const bool is_last = ++asked % (tries + 1) == 0;
      on.watch().fail(call, {is_last ? kIllegalAddress : kOutOfMemory});
    };
    const auto error = request.make(on);
    on.watch().during = nullptr;
    const bool fails_at_last = asked != 0 && asked % (tries + 1) == 0;
    if (!error || !fails_at_last) return;
    on.expect(
        error->code == Errc::not_supported || error->native == kIllegalAddress,
        text::format("{}, each {} answering {} {} and then {}", request.words, call_info(call).name,
                     code(kOutOfMemory), tries == 1 ? "once" : text::format("{} times", tries),
                     code(kIllegalAddress)),
        text::format("{}, after the last call of {}: {}", code(error->native), asked.load(),
                     answer_of(*error)),
        code(kIllegalAddress));
  });
}

/// Makes each request of a new manager while one of the allocating driver calls that it needs
/// returns `native`. Nothing fails before or after that call, so this finds a manager that takes
/// every failure of the call for out of memory.
void check_each_allocating_call(Bench& b, std::int32_t native) {
  for (const auto& request : kRequests) {
    if (request.size == 0 || b.affordable(2 * request.size) < 2 * request.size) continue;
    std::vector<Call> calls;
    {
      auto fresh = Bench::create(b.subject(), b.clause());
      if (!fresh) return b.inconclusive(describe(fresh.error()));
      auto& trial = **fresh;
      trial.manager();
      trial.watch().forget();
      if (request.make(trial)) continue;
      for (const auto& event : trial.watch().events()) {
        const auto is_new = std::find(calls.begin(), calls.end(), event.call) == calls.end();
        const auto allocates = std::find(kAllocatingCalls.begin(), kAllocatingCalls.end(),
                                         event.call) != kAllocatingCalls.end();
        if (is_new && allocates) calls.push_back(event.call);
      }
    }
    for (const auto call : calls) {
      auto fresh = Bench::create(b.subject(), b.clause());
      if (!fresh) return b.inconclusive(describe(fresh.error()));
      auto& trial = **fresh;
      trial.untraceable();
      trial.manager();
      trial.watch().fail_always(call, native);
      const auto error = request.make(trial);
      trial.watch().fail_always(call, 0);
      b.expect(!error || error->code == Errc::not_supported || error->native == native,
               text::format("{}, each {} answering {}", request.words, call_info(call).name,
                            code(native)),
               error ? answer_of(*error) : "", code(native));
      trial.expect(true, {}, {}, {});
      b.take(trial);
      for (const std::uint64_t tries : {1, 2, 3})
        if (!b.decided()) check_last_attempt(b, request, call, tries);
      if (b.decided()) return;
    }
  }
}

/// Requests memory that was freed on another stream, while the driver refuses every wait.
void check_refused_waits(Bench& b, std::uint64_t size) {
  constexpr std::array kWaits{Call::ctx_synchronize,   Call::stream_synchronize,
                              Call::event_synchronize, Call::stream_wait_event,
                              Call::event_query,       Call::stream_query};
  b.apart([&](Bench& on) {
    const std::array streams{on.stream(), on.stream()};
    auto block = on.try_memalloc(size, streams[0]);
    if (!block || !block->free(streams[1])) return;
    for (const auto call : kWaits) on.watch().fail_always(call, kIllegalAddress);
    for (const auto stream : {streams[0], StreamHandle{}}) {
      const auto made = on.try_memalloc(size, stream);
      if (made || made.error().code == Errc::not_supported) continue;
      on.expect(
          made.error().native == kIllegalAddress || made.error().code == Errc::out_of_memory,
          text::format("memalloc({}), after a free of as much on another stream, each wait and "
                       "query answering {}",
                       size, code(kIllegalAddress)),
          answer_of(made.error()),
          text::format("memory, {}, or out of memory", code(kIllegalAddress)));
    }
    for (const auto call : kWaits) on.watch().fail_always(call, 0);
  });
}

// Frees that the driver refuses.

// Every call by which memory of any kind goes back.
constexpr auto kMemoryFrees = {Call::mem_free,  Call::runtime_free,  Call::mem_free_async,
                               Call::mem_unmap, Call::mem_free_host, Call::mem_host_unregister};

/// While one lives, it collects the codes that a manager reports to its host, as answers of free()
/// and through free_failed().
class ToldCodes {
 public:
  explicit ToldCodes(Bench& bench) : b_(bench) {
    b_.observer().during = [this](const CallEvent& event) {
      const std::lock_guard lock(mutex_);
      if (event.native != 0) codes_.push_back(event.native);
    };
  }
  ~ToldCodes() { b_.observer().during = nullptr; }
  ToldCodes(const ToldCodes&) = delete;
  ToldCodes& operator=(const ToldCodes&) = delete;
  void add(std::int32_t native) {
    const std::lock_guard lock(mutex_);
    if (native != 0) codes_.push_back(native);
  }
  /// Returns a code that the driver has not returned, or 0.
  std::int32_t strange() const {
    const auto events = b_.watch().events();
    const std::lock_guard lock(mutex_);
    for (const auto native : codes_) {
      const bool is_known = std::any_of(events.begin(), events.end(),
                                        [&](const auto& event) { return event.native == native; });
      if (native != kIllegalAddress && !is_known) return native;
    }
    return 0;
  }

 private:
  Bench& b_;
  mutable std::mutex mutex_;
  std::vector<std::int32_t> codes_;
};

std::int32_t native_of(const Status& answer) { return answer ? 0 : answer.error().native; }

/// Which frees the driver refuses.
enum class Refused { all, first };

/// Runs `act` while the driver refuses frees. Each refusal must be reported with the driver's code:
/// by the answer of `act`, which is that code if it reported a failed free, or to the observer.
template <class Act>
void judge_refused_frees(Bench& b, std::string_view act_words, Act act,
                         Refused which = Refused::all) {
  if (b.decided()) return;
  const auto done = text::format("{}, {} answering {}", act_words,
                                 which == Refused::all ? "each free" : "the first of several frees",
                                 code(kIllegalAddress));
  ToldCodes told(b);
  const auto before = b.observer().failures();
  const auto heard = [&] { return b.observer().failures() - before; };
  const auto refused = [&] {
    const auto events = b.watch().events();
    return std::count_if(events.begin(), events.end(), [](const auto& event) {
      return event.native == kIllegalAddress && is_end(event.call);
    });
  };
  b.watch().forget();
  for (const auto call : kMemoryFrees) {
    if (which == Refused::all) b.watch().fail_always(call, kIllegalAddress);
    if (which == Refused::first) b.watch().fail(call, {kIllegalAddress});
  }
  const std::int32_t answer = act();
  const bool said = answer != 0;
  // The manager may free on a thread of its own.
  for (int i = 0; i < 50 && refused() != 0 && !said && heard() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto call : kMemoryFrees) {
    b.watch().fail_always(call, 0);
    b.watch().fail(call, {});
  }
  b.expect(refused() == 0 || said || heard() != 0, done,
           text::format("the driver refused {} frees, and nobody is told", refused()),
           text::format("{} as the answer of the call that made them, or free_failed()",
                        code(kIllegalAddress)));
  // Further calls may fail because a free was refused; the driver refuses, for example, to end a
  // range that is still mapped. A manager that frees on its own thread may also report earlier
  // failures here.
  const auto failed = [&] {
    const auto events = b.watch().events();
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(), [](const auto& event) { return event.native != 0; }));
  };
  b.expect(b.observer().is_told_elsewhere() || heard() <= failed(), done,
           text::format("{} calls of the driver failed, and {} failures are told, by answers of "
                        "free() and by free_failed()",
                        failed(), heard()),
           "each is told once");
  if (refused() == 0) return;
  told.add(answer);
  const auto strange = told.strange();
  b.expect(strange == 0, done,
           text::format("{} is told: the driver has not answered it", code(strange)),
           text::format("{}, as the driver answers", code(kIllegalAddress)));
}

std::vector<BenchMemory> one_of_each_kind(Bench& b) {
  std::vector<BenchMemory> blocks;
  const auto keep = [&](Result<BenchMemory> made) {
    if (made) blocks.push_back(*std::move(made));
  };
  keep(b.try_memalloc(64_KiB));
  keep(b.try_memalloc(24_MiB));
  keep(b.try_managed(4_KiB));
  keep(b.try_hosted(4_KiB, {.mapped = true}));
  keep(b.try_hosted(4_KiB, {}));
  keep(b.try_pin(b.buffer(), {.mapped = true}));
  keep(b.try_pin(b.buffer()));
  return blocks;
}

void check_frees_told(Bench& b) {
  b.untraceable();
  b.manager();
  b.expect(true, {}, {}, {});
  const auto judge = [&](std::string_view done, auto act) { judge_refused_frees(b, done, act); };
  for (auto& block : one_of_each_kind(b)) {
    const auto done = text::format("the end of {} bytes of {} memory", block.size(),
                                   block.host() != nullptr ? "page-locked"
                                   : block.is_mapped()     ? "managed"
                                                           : "device");
    judge(done, [&] {
      block.drop();
      return 0;
    });
  }
  judge("flush()", [&] { return native_of(b.manager().flush()); });
  for (int i = 0; i < 40; ++i) {
    auto block = i % 2 == 0 ? b.try_managed(4_KiB) : b.try_hosted(64, {.mapped = true});
    if (!block) continue;
    judge("the end of one block of many, which makes the frees that waited", [&] {
      block->drop();
      return 0;
    });
  }
  { const std::array idle{b.try_memalloc(3_MiB), b.try_memalloc(3_MiB), b.try_memalloc(24_MiB)}; }
  judge("trim(0)", [&] { return native_of(b.manager().trim(0)); });
  // Such a request releases idle memory and makes pending frees. Its answer may be the error of one
  // of them.
  for (const auto size : {3_MiB, 24_MiB}) {
    // Its answer may be the error of a free that was refused before.
    static_cast<void>(b.manager().flush().has_value());
    { const std::array idle{b.try_memalloc(size), b.try_memalloc(size)}; }
    judge(text::format("a request for more than there is, after blocks of {} bytes", size), [&] {
      const auto info = b.device().mem_get_info();
      const auto out = info ? b.try_memalloc(info->free + 2_MiB) : info.error();
      return !out && out.error().native == kIllegalAddress ? kIllegalAddress : 0;
    });
  }
  for (const bool pins : {false, true}) {
    const auto ask = [&] {
      b.watch().fail(Call::mem_host_get_device_pointer, {kLaunchFailed});
      const auto block =
          pins ? b.try_pin(b.buffer(), {.mapped = true}) : b.try_hosted(4_KiB, {.mapped = true});
      b.watch().fail(Call::mem_host_get_device_pointer, {});
      return !block && block.error().native == kIllegalAddress ? kIllegalAddress : 0;
    };
    judge(pins ? "mempin of a region that has no device address"
               : "memhostalloc of mapped memory that has no device address",
          ask);
    const auto before = b.observer().failures();
    ask();
    b.expect_equal(
        "free_failed() in a request for mapped memory without a device address, whose "
        "free succeeds",
        b.observer().failures() - before, 0u);
  }
  for (const auto size : {4_KiB, 8_KiB}) {
    for (const bool pins : {false, true}) {
      auto block = pins ? b.try_pin(b.buffer(size)) : b.try_hosted(size, {});
      if (!block) continue;
      judge(pins ? "a region unpinned by reset()" : "reset()", [&] {
        b.reset();
        return 0;
      });
    }
  }
  const auto alive = one_of_each_kind(b);
  judge("reset() with memory of each kind alive", [&] {
    b.reset();
    return 0;
  });
  const auto again = one_of_each_kind(b);
  judge("the manager's end with memory of each kind alive", [&] {
    b.end_manager();
    return 0;
  });
}

/// Expects a report of frees that a deferral held back, one of each kind in turn.
void check_held_back_told(Bench& b) {
  b.manager();
  struct Held {
    std::string_view name;
    Result<BenchMemory> (*make)(Bench& on);
  };
  static constexpr Held kHeld[] = {
      {"page-locked memory", [](Bench& on) { return on.try_hosted(4_KiB, {}); }},
      {"mapped memory", [](Bench& on) { return on.try_hosted(4_KiB, {.mapped = true}); }},
      {"managed memory", [](Bench& on) { return on.try_managed(4_KiB); }},
      {"device memory", [](Bench& on) { return on.try_memalloc(24_MiB); }}};
  for (const auto& [name, make] : kHeld) {
    auto deferred = b.defer();
    if (const auto block = make(b); !block) continue;
    judge_refused_frees(b, text::format("the end of a deferral that held back {}", name), [&] {
      deferred.end();
      return 0;
    });
    judge_refused_frees(b, text::format("flush() after a deferral that held back {}", name),
                        [&] { return native_of(b.manager().flush()); });
  }
}

/// Expects a report of one refused free among several.
void check_first_of_several_told(Bench& b) {
  b.manager();
  for (int i = 0; i < 2; ++i) {
    {
      const auto deferred = b.defer();
      for (int block = 0; block < 3; ++block) {
        if (const auto managed = b.try_managed(4_KiB)) continue;
        if (const auto mapped = b.try_hosted(2_MiB, {.mapped = true})) continue;
      }
    }
    judge_refused_frees(
        b, "flush()", [&] { return native_of(b.manager().flush()); }, Refused::first);
    const auto size = b.affordable(72_MiB) / 3;
    { const std::array idle{b.try_memalloc(size), b.try_memalloc(size), b.try_memalloc(size)}; }
    static_cast<void>(b.manager().flush().has_value());
    judge_refused_frees(
        b, "trim(0)", [&] { return native_of(b.manager().trim(0)); }, Refused::first);
  }
}

// The words of an error.

void check_words(Bench& b) {
  using std::chrono::steady_clock;
  b.untraceable();
  auto& manager = b.manager();
  const auto range = b.buffer();
  const auto pinned = b.try_pin(range);
  /// A request that fails, whatever the device has.
  struct RefusedRequest {
    std::string_view done;
    std::function<std::string()> words;
  };
  const auto words_of = [](const auto& made) {
    return made ? std::string() : std::string(made.error().message);
  };
  // Bytes that no device has; twice and four times as many still fit into 64 bits.
  constexpr auto kHuge = (std::uint64_t{1} << 61) + 4_KiB;
  const std::array all{
      RefusedRequest{"memalloc of more than 2^61 bytes",
                     [&] { return words_of(manager.memalloc(kHuge)); }},
      RefusedRequest{"memalloc of more than 2^62 bytes",
                     [&] { return words_of(manager.memalloc(2 * kHuge)); }},
      RefusedRequest{"memalloc(0)", [&] { return words_of(manager.memalloc(0)); }},
      RefusedRequest{"mempin of a region that is pinned",
                     [&] { return pinned ? words_of(manager.mempin(range, {})) : std::string(); }},
      RefusedRequest{"memhostalloc of more than 2^61 bytes",
                     [&] { return words_of(manager.memhostalloc(kHuge, {})); }}};
  std::array<const RefusedRequest*, 2> pair{};
  std::array<std::string, 2> words;
  for (const auto& one : all) {
    const auto said = one.words();
    bool is_steady = !said.empty();
    for (int i = 0; i < 4; ++i) is_steady = is_steady && one.words() == said;
    if (!is_steady || (pair[0] != nullptr && said == words[0])) continue;
    const auto at = pair[0] == nullptr ? 0u : 1u;
    pair[at] = &one;
    words[at] = said;
    if (at == 1) break;
  }
  b.watch().forgive();
  if (pair[1] == nullptr)
    return b.not_applicable("the words of an error do not tell one request from another");
  b.expect(true, {}, {}, {});
  std::array<std::string, 2> wrong;
  const auto judge = [&] {
    b.watch().forgive();
    for (std::size_t at = 0; at < 2; ++at) {
      b.expect(
          wrong[at].empty(),
          text::format("{}, which fails, while another thread's {} fails", pair[at]->done,
                       pair[1 - at]->done),
          text::format("last_error() says \"{}\"", text::printable(wrong[at], 120)),
          text::format("\"{}\", as without the other thread", text::printable(words[at], 120)));
    }
  };
  // First one after the other, so that the outcome does not depend on timing.
  const auto* plugin = dynamic_cast<const plugin::ImportedManager*>(&manager);
  if (plugin != nullptr && plugin->has_last_error()) {
    const auto one_after_the_other = [&] {
      for (std::size_t at = 0; at < 2; ++at) {
        pair[at]->words();
        start_thread([&] { pair[1 - at]->words(); }).join();
        const auto later = plugin->last_error();
        if (later != words[at]) wrong[at] = later.empty() ? "(nothing)" : later;
      }
      judge();
    };
    one_after_the_other();
    if (b.decided()) return;
    const auto deferred = manager.defer_cleanup();
    one_after_the_other();
    if (b.decided()) return;
    const auto nested = manager.defer_cleanup();
    one_after_the_other();
    if (b.decided()) return;
  }
  std::mutex mutex;
  const auto until = steady_clock::now() + std::chrono::milliseconds(60);
  run_interrupted(b, 2, [&](std::size_t at) {
    while (steady_clock::now() < until) {
      std::string seen;
      {
        const InManager in_manager;
        seen = pair[at]->words();
      }
      if (seen == words[at]) continue;
      const std::lock_guard lock(mutex);
      wrong[at] = seen;
      return;
    }
  });
  judge();
}

bool is_utf8(std::string_view words) {
  while (!words.empty()) {
    const auto length = text::utf8_length(words);
    if (length == 0) return false;
    words.remove_prefix(length);
  }
  return true;
}

/// A call that fails.
struct Failing {
  std::string_view done;
  std::function<bool()> is_refused;
};

/// Makes each call on a new thread, which has no earlier failure that could be described instead.
void judge_words_of(Bench& b, std::span<const Failing> all) {
  const auto* plugin = dynamic_cast<const plugin::ImportedManager*>(&b.manager());
  if (plugin == nullptr || !plugin->has_last_error()) return;
  auto& manager = b.manager();
  const bool serves_device = manager.memalloc(4_KiB).has_value();
  const auto allocates = [&] {
    return serves_device ? manager.memalloc(4_KiB).has_value()
                         : manager.memhostalloc(4_KiB, {}).has_value();
  };
  for (const auto& one : all) {
    std::string said, later;
    bool is_refused = false;
    start_thread([&] {
      is_refused = one.is_refused();
      if (!is_refused) return;
      said = plugin->last_error();
      const bool succeed = allocates() && manager.get_memory_info();
      later = succeed ? plugin->last_error() : said;
    }).join();
    b.watch().forgive();
    if (!is_refused) continue;
    b.expect(!said.empty(), text::format("{}, which fails on a new thread; last_error()", one.done),
             "no words", "words about that failure");
    b.expect(is_utf8(said), text::format("{}; last_error()", one.done),
             text::format("\"{}\", which is not UTF-8", text::printable(said, 120)), "UTF-8");
    b.expect(later == said,
             text::format("{}, which fails; then an allocation of 4096 bytes, its free and "
                          "get_memory_info(), which succeed; last_error()",
                          one.done),
             text::format("\"{}\"", text::printable(later, 120)),
             text::format("\"{}\", which describes the last call that failed",
                          text::printable(said, 120)));
  }
}

/// Judges requests that fail whatever the device has.
void judge_last_error(Bench& b) {
  auto& manager = b.manager();
  const auto range = b.buffer();
  const auto pinned = b.try_pin(range);
  constexpr auto kHuge = (std::uint64_t{1} << 61) + 4_KiB;  // bytes that no device has
  const std::array all{
      Failing{"memalloc of more than 2^61 bytes", [&] { return !manager.memalloc(kHuge); }},
      Failing{"memalloc(0)", [&] { return !manager.memalloc(0); }},
      Failing{"memhostalloc of more than 2^61 bytes",
              [&] { return offers_hosted(manager) && !manager.memhostalloc(kHuge, {}); }},
      Failing{"memallocmanaged of more than 2^61 bytes",
              [&] {
                return offers_managed(manager) &&
                       !manager.memallocmanaged(kHuge, AttachFlags::global);
              }},
      Failing{"mempin of a region that is pinned",
              [&] { return pinned.has_value() && !manager.mempin(range, {}); }}};
  judge_words_of(b, all);
}

/// Judges calls that fail because the driver refuses them.
void judge_last_error_of_refused(Bench& b) {
  auto& manager = b.manager();
  const auto block = b.try_memalloc(64_KiB);
  const auto while_refused = [&b](std::initializer_list<Call> calls, const auto& ask) {
    for (const auto call : calls) b.watch().fail_always(call, kIllegalAddress);
    const auto answer = ask();
    for (const auto call : calls) b.watch().fail_always(call, 0);
    return !answer && answer.error().code != Errc::not_supported;
  };
  const std::array all{Failing{"get_memory_info(), which the driver refuses",
                               [&] {
                                 return while_refused({Call::mem_get_info, Call::runtime_get_info},
                                                      [&] { return manager.get_memory_info(); });
                               }},
                       Failing{"get_ipc_handle(), which the driver refuses", [&] {
                                 return block && while_refused({Call::ipc_get_mem_handle}, [&] {
                                          return manager.get_ipc_handle(block->view());
                                        });
                               }}};
  judge_words_of(b, all);
}

/// The judged shared object and the options that its manager was named with.
struct LoadedSubject {
  plugin::Plugin plugin;
  std::string options;
};

std::optional<LoadedSubject> load_subject(const Bench& b) {
  if (!b.subject().foreign || b.subject().is_pair) return std::nullopt;
  const std::string_view spec = b.subject().manager;
  for (const auto end : {spec.size(), spec.rfind(':')}) {
    if (end == std::string_view::npos) break;
    auto plugin = plugin::load_plugin(spec.substr(0, end));
    if (plugin)
      return LoadedSubject{*std::move(plugin),
                           std::string(end < spec.size() ? spec.substr(end + 1) : "")};
  }
  return std::nullopt;
}

/// Expects words about a failed create(), too. last_error() is then called without a manager.
void judge_last_error_of_create(Bench& b) {
  const auto loaded = load_subject(b);
  if (!loaded || loaded->plugin.table.last_error == nullptr) return;
  const auto options =
      text::format("{}{}no_such_option=1", loaded->options, loaded->options.empty() ? "" : ",");
  std::string said;
  emm_status status = EMM_SUCCESS;
  start_thread([&] {
    const plugin::RunningCall running("create");
    const emm_create_v1 create{.struct_size = sizeof create,
                               .flags = EMM_CREATE_PROBE,
                               .device = 0,
                               .options = options.c_str(),
                               .driver = nullptr,
                               .host = nullptr};
    emm_manager* self = nullptr;
    status = loaded->plugin.create(&create, &self);
    if (status == EMM_SUCCESS) return loaded->plugin.table.destroy(self);
    std::array<char, 256> words{};
    loaded->plugin.table.last_error(nullptr, words.data(), words.size() - 1);
    said = words.data();
  }).join();
  b.expect(status == EMM_SUCCESS || !said.empty(),
           text::format("create() with the options {}, which it refuses on a new thread; "
                        "last_error(NULL)",
                        options),
           "no words", "words about that failure");
}

/// Expects state() not to wait for any work: neither that of a freed block nor all of the device's.
void judge_state_is_cheap(Bench& b) {
  const auto stream = b.stream();
  for (const auto size : {64_KiB, 5_MiB}) {
    auto block = b.try_memalloc(size, stream);
    if (!block || !b.device().memset_d8_async(block->device(), 1, size, stream)) continue;
    if (!block->free(stream)) return;
  }
  std::optional<Call> waited;
  b.watch().during = [&, home = std::this_thread::get_id()](const CallEvent& event) {
    const bool is_wait = event.call == Call::ctx_synchronize ||
                         event.call == Call::stream_synchronize ||
                         event.call == Call::event_synchronize;
    if (is_wait && std::this_thread::get_id() == home) waited = event.call;
  };
  static_cast<void>(b.manager().state());
  b.watch().during = nullptr;
  b.expect(!waited, "state(), with blocks freed whose work has not ended",
           waited ? text::format("it calls {}, which waits", call_info(*waited).cuda_name) : "",
           "a state that is cheap: no call that waits");
}

/// Makes requests of every kind fail at each of their driver calls. The bench checks their answers.
void fail_requests_in_turn(Bench& b) {
  // More driver calls than a request makes with any manager.
  constexpr std::uint64_t kMostCalls = 12;
  for (const auto& request : kRequests) {
    if (request.make == nullptr || b.affordable(request.size) < request.size) continue;
    for (std::uint64_t n = 1; n <= kMostCalls && !b.decided(); ++n) {
      b.watch().fail_nth(n, kIllegalAddress, false);
      static_cast<void>(request.make(b));
      const auto reached = b.watch().failed_nth();
      b.watch().fail_nth(0, 0, false);
      if (!reached) break;
    }
  }
}

// Options.

/// Returns the keys of "max=SIZE,slab=SIZE", which is how a table describes its options.
std::vector<std::string> listed_keys(std::string_view words) {
  std::vector<std::string> keys;
  std::string word;
  for (const char c : words) {
    const bool is_of_key = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (c == '=' && !word.empty()) keys.push_back(word);
    is_of_key ? word.push_back(c) : word.clear();
  }
  return keys;
}

/// Returns what the table of a shared object says about its options. A bundled manager has no such
/// table.
std::string listed_options(const Bench& b) {
  if (!b.subject().foreign) return {};
  const std::string_view spec = b.subject().manager;
  for (const auto end : {spec.size(), spec.rfind(':')}) {
    if (end == std::string_view::npos) break;
    const auto managers = plugin::managers_of(spec.substr(0, end));
    if (managers && managers->size() == 1) return managers->front().options;
  }
  return {};
}

/// Expects no exception, whatever the manager makes of the value.
void expect_status(Bench& b, const std::string& option) {
  const auto found = b.subject().with_options(option);
  const auto made = found ? found->make({}) : found.error();
  const auto words = made ? std::string() : describe(made.error());
  b.expect(words.find("an exception came out of") == std::string::npos,
           text::format("the option {}", option), words, text::format("a manager, or {}", code(1)));
}

void expect_refused(Bench& b, const std::string& option) {
  const auto found = b.subject().with_options(option);
  const auto made = found ? found->make({}) : found.error();
  const bool refused =
      !made && (made.error().code == Errc::usage || made.error().code == Errc::invalid_value);
  b.expect(refused, text::format("the option {}", option),
           made ? "a manager" : answer_of(made.error()), code(1));
}

/// Expects requests for 0 bytes to have tokens of their own when they are served, as all live
/// memory does.
void expect_tokens_apart(Bench& b) {
  const auto* plugin = dynamic_cast<const plugin::ImportedManager*>(&b.manager());
  if (plugin == nullptr) return;
  std::vector<BenchMemory> blocks;
  std::vector<emm_token> tokens;
  const auto keep = [&](std::string_view done, Result<BenchMemory> made) {
    if (!made) return;
    const auto token = plugin->last_token();
    blocks.push_back(*std::move(made));
    if (token == 0) return;  // there is nothing to free
    b.expect(std::find(tokens.begin(), tokens.end(), token) == tokens.end(), done,
             text::format("token {}, which names memory that is alive", token),
             "a token of its own");
    tokens.push_back(token);
  };
  for (int i = 0; i < 3; ++i) {
    keep("memalloc(0)", b.try_memalloc(0));
    keep("memallocmanaged(0)", b.try_managed(0));
    keep("memhostalloc(0)", b.try_hosted(0, {}));
    keep("memhostalloc(0, mapped)", b.try_hosted(0, {.mapped = true}));
    keep("memalloc(1)", b.try_memalloc(1));
  }
}

// What create() is given.

/// Uses a manager that was made without a host table. Its emm_create_v1 and the text there are
/// unmapped when create() has returned, so a slot that reads either faults.
void use_with_nothing_of_create(Bench& b) {
  const auto loaded = load_subject(b);
  if (!loaded || (loaded->plugin.table.flags & EMM_PLUGIN_CALLS_CUDA) != 0) return;
  const auto& table = loaded->plugin.table;
  const auto size = sizeof(emm_create_v1) + loaded->options.size() + 1;
  void* const page =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  auto* const text = static_cast<char*>(page) + sizeof(emm_create_v1);
  std::copy_n(loaded->options.c_str(), loaded->options.size() + 1, text);
  const plugin::DriverTable driver(b.driver(), b.runtime());
  const auto* create = new (page) emm_create_v1{.struct_size = sizeof(emm_create_v1),
                                                .flags = 0,
                                                .device = b.driver().device_ordinal(),
                                                .options = text,
                                                .driver = &driver.table(),
                                                .host = nullptr};
  emm_manager* self = nullptr;
  emm_status status = EMM_SUCCESS;
  {
    const plugin::RunningCall running("create, whose host is NULL");
    status = loaded->plugin.create(create, &self);
  }
  munmap(page, size);
  b.expect(status == EMM_SUCCESS && self != nullptr, "create(), whose host is NULL",
           status == EMM_SUCCESS ? "success without a manager" : code(status), "a manager");
  if (status != EMM_SUCCESS || self == nullptr) return;
  const plugin::RunningCall running("a slot after create, whose emm_create_v1 and text are gone");
  if (table.initialize != nullptr) table.initialize(self);
  emm_memory memory{};
  memory.struct_size = sizeof memory;
  if (table.memalloc(self, 4096, 0, &memory) == EMM_SUCCESS) table.free(self, memory.token, 0);
  memory = {};
  memory.struct_size = sizeof memory;
  if (table.memallocmanaged != nullptr &&
      table.memallocmanaged(self, 4096, EMM_ATTACH_GLOBAL, &memory) == EMM_SUCCESS)
    table.free(self, memory.token, 0);
  if (table.flush != nullptr) table.flush(self);
  std::array<char, 512> words{};
  if (table.report != nullptr) table.report(self, words.data(), words.size());
  if (table.last_error != nullptr) table.last_error(self, words.data(), words.size());
  if (table.trim != nullptr) table.trim(self, 0);
  table.destroy(self);
}

/// Reads the names of statistics after the end of the manager that gave them.
void read_names_after_end(Bench& b) {
  const auto loaded = load_subject(b);
  if (!loaded || (loaded->plugin.table.flags & EMM_PLUGIN_CALLS_CUDA) != 0) return;
  const auto& table = loaded->plugin.table;
  if (table.statistics == nullptr) return;
  const plugin::DriverTable driver(b.driver(), b.runtime());
  const emm_create_v1 create{.struct_size = sizeof create,
                             .flags = 0,
                             .device = b.driver().device_ordinal(),
                             .options = loaded->options.c_str(),
                             .driver = &driver.table(),
                             .host = nullptr};
  const plugin::RunningCall running("statistics, whose names are read after destroy");
  emm_manager* self = nullptr;
  if (loaded->plugin.create(&create, &self) != EMM_SUCCESS || self == nullptr) return;
  if (table.initialize != nullptr) table.initialize(self);
  std::array<emm_statistic, 256> given{};
  const auto count = std::min(table.statistics(self, given.data(), given.size()), given.size());
  std::vector<std::string> names;
  for (const auto& one : std::span(given).first(count))
    names.emplace_back(one.name != nullptr ? one.name : "");
  table.destroy(self);
  for (std::size_t at = 0; at < count; ++at) {
    if (given[at].name == nullptr) continue;
    b.expect(given[at].name == names[at], "the name of a statistic, after the manager's end",
             text::format("\"{}\"", text::printable(given[at].name, 80)),
             text::format("\"{}\", as before: it stays valid while the library is loaded",
                          text::printable(names[at], 80)));
  }
}

/// Asks for the state with every struct_size that a host may have. What lies behind stays as it is.
void ask_for_parts_of_the_state(Bench& b) {
  const auto loaded = load_subject(b);
  if (!loaded || (loaded->plugin.table.flags & EMM_PLUGIN_CALLS_CUDA) != 0) return;
  const auto& table = loaded->plugin.table;
  if (table.state == nullptr) return;
  const plugin::DriverTable driver(b.driver(), b.runtime());
  const emm_create_v1 create{.struct_size = sizeof create,
                             .flags = 0,
                             .device = b.driver().device_ordinal(),
                             .options = loaded->options.c_str(),
                             .driver = &driver.table(),
                             .host = nullptr};
  const plugin::RunningCall running("state, with a smaller struct_size");
  emm_manager* self = nullptr;
  if (loaded->plugin.create(&create, &self) != EMM_SUCCESS || self == nullptr) return;
  if (table.initialize != nullptr) table.initialize(self);
  static constexpr unsigned char kPattern = 0xa5;  // in what the manager must leave alone
  const auto ask = [&](std::string_view when) {
    for (auto size = sizeof(std::size_t) + sizeof(std::uint64_t); size < sizeof(emm_state);
         size += sizeof(std::uint64_t)) {
      std::array<unsigned char, sizeof(emm_state)> given;
      given.fill(kPattern);
      emm_state state{};
      state.struct_size = size;
      state.live_bytes = state.reserved_bytes = state.largest_free_bytes = EMM_NOT_KNOWN;
      state.pending_count = state.pending_bytes = EMM_NOT_KNOWN;
      std::memcpy(given.data(), &state, size);
      alignas(emm_state) std::array<unsigned char, sizeof(emm_state)> into = given;
      table.state(self, reinterpret_cast<emm_state*>(into.data()));
      const bool whole = std::all_of(into.begin() + static_cast<std::ptrdiff_t>(size), into.end(),
                                     [](unsigned char byte) { return byte == kPattern; });
      b.expect(whole, text::format("state() {}, with a struct_size of {}", when, size),
               "it writes behind that size", "it writes no member that the host's struct lacks");
    }
  };
  ask("of a new manager");
  emm_memory memory{};
  memory.struct_size = sizeof memory;
  const bool is_alive = table.memalloc(self, 4096, 0, &memory) == EMM_SUCCESS;
  ask("with a live block");
  if (is_alive) table.free(self, memory.token, 0);
  ask("after a free");
  if (table.defer_cleanup != nullptr && table.end_defer_cleanup != nullptr) {
    table.defer_cleanup(self);
    memory.struct_size = sizeof memory;
    if (table.memalloc(self, 4096, 0, &memory) == EMM_SUCCESS) table.free(self, memory.token, 0);
    ask("in a deferral");
    table.defer_cleanup(self);
    ask("in a nested deferral");
    table.end_defer_cleanup(self);
    table.end_defer_cleanup(self);
  }
  if (table.reset != nullptr) {
    table.reset(self);
    ask("after a reset");
  }
  table.destroy(self);
}

/// Ends a manager whose context has already been destroyed.
void end_without_context(Bench& b) {
  const auto device = b.try_memalloc(64_KiB);
  const auto managed = b.try_managed(4_KiB);
  const auto hosted = b.try_hosted(100, {.mapped = true});
  b.watch().fail_all(kContextIsDestroyed);
  b.end_manager();
  b.watch().fail_all(0);
}

constexpr Clause kErrorsClauses[] = {
    {.id = "errors/passed_on",
     .rule = "An error of the driver other than out of memory is the answer, with its code.",
     .source = "emm_plugin.h: any other status is passed on as it is; drv:744",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (b.subject().is_pair)
             return b.not_applicable("functions that answer an address have no code to pass on");
           std::vector<std::int32_t> codes{1, 700, 719, 999};
           if (!b.is_simulated()) codes = {700};  // no device hears of the others
           for (const auto native : codes) {
             with_failing_driver(b, native, [&](std::string_view done, const Error& error) {
               b.expect(error.native == native, done, answer_of(error), code(native));
             });
           }
           if (!b.decided()) check_each_allocating_call(b, kIllegalAddress);
           for (const auto size : {70_KiB, b.affordable(48_MiB) / 4})
             if (!b.decided()) check_refused_waits(b, size);
         }},

    {.id = "errors/out_of_memory",
     .rule = "Where the driver has no memory, the answer is out of memory.",
     .source = "emm_plugin.h: 2 is out of memory; NBEP 7",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           with_failing_driver(b, kOutOfMemory, [&](std::string_view done, const Error& error) {
             b.expect(error.code == Errc::out_of_memory, done, answer_of(error),
                      code(kOutOfMemory));
           });
         }},

    {.id = "errors/frees_told",
     .rule =
         "A free that the driver refuses is told: by the answer of the call that made it, or to "
         "whoever observes the manager.",
     .source = "emm_plugin.h, free_failed and flush; ERR-2",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "ERR-2 PD-11 stream/hazards abi/answers accounts/balance",
     .check =
         [](Bench& b) {
           if (b.is_numba()) return b.not_applicable("as Numba, a flush stops at the first: PD-11");
           if (b.subject().is_pair)
             return b.not_applicable("functions that answer no code have nobody to tell");
           check_frees_told(b);
           if (!b.decided()) b.apart(check_held_back_told);
           if (!b.decided()) b.apart(check_first_of_several_told);
         }},

    {.id = "errors/words",
     .rule = "The words of an error are those of the calling thread's own last failure.",
     .source = "emm_plugin.h, last_error",
     .level = Level::must,
     .scope = Scope::all,
     .check = check_words},

    {.id = "errors/initialize",
     .rule =
         "Where the driver fails in initialize(), the answer is its code, or the manager serves "
         "all the same.",
     .source = "emm_plugin.h: any other status is passed on as it is; NBEP 7, initialize",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           auto& manager = b.uninitialized();
           b.watch().fail_all(kIllegalAddress);
           const auto answer = manager.initialize();
           b.watch().fail_all(0);
           const auto done =
               text::format("initialize(), each driver call answering {}", code(kIllegalAddress));
           b.expect(answer || b.subject().is_pair || answer.error().native == kIllegalAddress, done,
                    answer ? "" : answer_of(answer.error()), code(kIllegalAddress));
           if (answer) {
             const auto block = manager.memalloc(64_KiB);
             b.expect(block || block.error().code == Errc::not_supported,
                      text::format("{}, which it answers with success; then memalloc(65536)", done),
                      block ? "" : answer_of(block.error()), "memory");
           }
           b.expect_ok(text::format("{}; then once more, the driver being well", done),
                       manager.initialize());
           const auto block = b.any(64_KiB);
           b.expect(block.alive(), "memalloc(65536) after that", "no memory", "memory");
         }},

    {.id = "errors/options",
     .rule = "An option that the manager does not know is refused, and no value of one that it "
             "knows makes it throw.",
     .source =
         "emm_plugin.h: create answers EMM_INVALID_VALUE to options that it does not know; no "
         "exception may leave a slot",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (!b.subject().with_options)
             return b.not_applicable("this manager cannot be asked with other options");
           for (const std::string_view option :
                {"no_such_option=1", "no_such_option", "no_such_option=", "no_such_option=,name"}) {
             expect_refused(b, std::string(option));
           }
           // A key that only begins with a known one is unknown. Which values the known one takes
           // is not known here, so several are tried.
           const auto keys = listed_keys(listed_options(b));
           for (const auto& key : keys) {
             const auto longer = key + "x";
             if (std::find(keys.begin(), keys.end(), longer) != keys.end()) continue;
             for (const std::string_view value : {"1", "64MiB", "67108864", "true", "on", "name"})
               expect_refused(b, text::format("{}={}", longer, value));
           }
           for (const auto& key : keys)
             for (const auto& value : {std::string(), std::string("abc"), std::string("-1"),
                                       std::string("1e"), std::string(30, '9')})
               expect_status(b, text::format("{}={}", key, value));
         }},

    {.id = "suite/size_zero",
     .rule = "A request for 0 bytes is an error, or gives what no other block is given, and can be "
             "freed.",
     .source = "emm/memory_manager.hpp; CUDA: cuMemAlloc refuses 0",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto kept = b.any(4_KiB);
           if (b.decided()) return;
           b.fill(kept, 0x21);
           for (int round = 0; round < 2; ++round) {
             auto none = b.try_memalloc(0);
             auto managed = b.try_managed(0);
             auto mapped = b.try_hosted(0, {.mapped = true});
             auto pinned = b.try_hosted(0, {});
             auto region = b.try_pin({b.buffer().pointer, 0});
             expect_tokens_apart(b);
             std::vector<BenchMemory> blocks;
             for (std::uint64_t i = 1; i <= 40; ++i) {
               blocks.push_back(b.any(i * 100));
               b.fill(blocks.back(), static_cast<std::uint8_t>(i));
             }
             for (auto* block : {&none, &managed, &mapped, &pinned, &region}) {
               if (*block) (*block)->drop();
             }
             auto again = b.any(100);
             b.fill(again, 0x55);
             for (std::uint64_t i = 1; i <= 40 && !b.decided(); ++i) {
               b.expect(b.holds(blocks[i - 1], static_cast<std::uint8_t>(i)),
                        "blocks asked for beside requests for 0 bytes, which then end",
                        "other content", "what was written");
             }
           }
           b.expect(kept.alive() && b.holds(kept, 0x21), "requests for 0 bytes, and their ends",
                    "other memory is lost", "it is as it was");
         }},

    {.id = "abi/answers",
     .rule = "state, statistics, report and the words of an error write what they are given room "
             "for, no member beyond the host's struct_size, in UTF-8; state waits for no work; a "
             "call that fails leaves nothing in its "
             "answer, and has words until the next that fails; no slot throws.",
     .source = "emm_plugin.h",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check =
         [](Bench& b) {
           auto& manager = b.manager();
           const auto ask = [&](std::string_view when) {
             const auto state = manager.state();
             static_cast<void>(manager.statistics());
             const auto report = manager.report();
             b.expect(report.find('\0') == std::string::npos, when, "a report with a NUL in it",
                      "text");
             b.expect(is_utf8(report), when,
                      text::format("the report \"{}\", which is not UTF-8",
                                   text::printable(report, 120)),
                      "UTF-8");
             b.expect(!state.live_bytes || !state.reserved_bytes ||
                          *state.live_bytes <= *state.reserved_bytes + 64_MiB,
                      when, "a state that cannot be", "live bytes that are reserved");
             const auto words = b.observer().misbehaviour();
             b.expect(words.empty(), when, words, "answers as emm_plugin.h says");
           };
           ask("a new manager, asked for its state, statistics and report");
           auto block = b.any(64_KiB);
           for (const auto size : {std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
             const auto refused = b.try_memalloc(size);
           }
           ask("after requests that are refused");
           block.drop();
           const auto trimmed = manager.trim(0);
           b.expect(trimmed || trimmed.error().code == Errc::not_supported, "trim(0)",
                    trimmed ? "" : answer_of(trimmed.error()), "success");
           const auto next = b.any(64_KiB);
           ask("after trim(0)");
           b.reset();
           ask("after reset");
           judge_last_error(b);
           if (b.decided()) return;
           b.apart(judge_last_error_of_refused);
           judge_last_error_of_create(b);
           b.apart(judge_state_is_cheap);
           if (b.decided()) return;
           b.apart(read_names_after_end);
           if (b.decided()) return;
           b.apart(ask_for_parts_of_the_state);
           if (b.decided()) return;
           b.apart([](Bench& on) {
             on.manager();
             fail_requests_in_turn(on);
           });
         }},

    {.id = "abi/harmless",
     .rule = "No operation crashes, hangs, ends the process or damages its heap.",
     .source =
         "emm_plugin.h: no slot may end the process; emm_create_v1: host may be NULL, and the "
         "struct and its text are valid during the call only",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check =
         [](Bench& b) {
           b.expect_equal("interface_version()", b.uninitialized().interface_version(), 1);
           b.expect_ok("initialize()", b.manager().initialize());
           auto block = b.any(100);
           const auto hosted = b.try_hosted(100, {.mapped = true});
           const auto region = b.try_pin(b.buffer());
           {
             const auto deferred = b.defer();
             block.drop();
           }
           const auto info = b.manager().get_memory_info();
           const auto flushed = b.manager().flush();
           // There is nothing to export at that address. The manager must survive the request.
           const bool was_refused = b.watch().first_uninvited().has_value();
           const auto none = b.manager().get_ipc_handle({.device_pointer = {64}, .size = 64});
           if (!was_refused) b.watch().forgive();
           b.expect(!none, "get_ipc_handle of 64 bytes at address 64, where nothing is", "a handle",
                    "an error, or not_supported");
           b.any(100).drop();
           b.reset();
           if (b.decided()) return;
           b.apart(use_with_nothing_of_create);
           b.apart(end_without_context);
         }},
};

}  // namespace

extern constinit const ClauseGroup errors_clauses{"Beyond the catalogue: errors and answers",
                                                  kErrorsClauses};

}  // namespace emm
