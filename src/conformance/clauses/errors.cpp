#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/interrupted_threads.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: what a manager answers where something goes wrong, and the parts of
// emm_plugin.h that no other clause asks of: texts, numbers, options, sizes of 0.

namespace emm {
namespace {

using namespace emm::conformance;

/// "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
std::string code(std::int32_t native) {
  return text::format("{} ({})", native_name(native), native);
}

/// A request of each kind and two questions: what each answers, or nothing where it succeeded.
struct Request {
  std::string_view words;
  std::uint64_t size;  ///< 0: it is a question.
  std::optional<Error> (*make)(Bench& b);
};

template <class T>
std::optional<Error> error_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error());
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
    {"get_ipc_handle", 0, nullptr},  // of memory that is alive
    {"memallocmanaged(4096)", 4_KiB, [](Bench& b) { return error_of(b.try_managed(4_KiB)); }},
};

/// Makes each request of a manager of its own, while every driver call answers `native`, and
/// gives `judge` the error. Afterwards the same request must be served.
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
    trial.watch().fail_all(native);
    const auto error = ask();
    trial.watch().fail_all(0);
    const auto refused = trial.watch().events();
    const auto done =
        text::format("{}, each driver call answering {}", request.words, code(native));
    if (error && error->code != Errc::not_supported) judge(done, *error);
    if (!error && request.size == 0 && !refused.empty())
      b.expect(false, done, "success", code(native));
    const auto later = ask();
    if (later && later->code == Errc::out_of_memory && trial.refuses_early()) continue;
    if (later && later->code != Errc::not_supported)
      b.expect(false, text::format("{}; then once more, the driver being well", done),
               describe(*later), "memory");
    trial.expect(true, {}, {}, {});
    b.take(trial);
  }
}

// Frees that the driver refuses.

constexpr std::int32_t kIllegalAddress = 700;
constexpr auto kMemoryFrees = {Call::mem_free,  Call::runtime_free,  Call::mem_free_async,
                               Call::mem_unmap, Call::mem_free_host, Call::mem_host_unregister};

/// Does `act` while the driver refuses every free. Whoever made a free has to say so: `act` by its
/// answer, which is true where it said that a free failed, or the manager to its observer.
template <class Act>
void judge_refused_frees(Bench& b, std::string_view done, Act act) {
  if (b.decided()) return;
  const auto before = b.observer().failures();
  const auto heard = [&] { return b.observer().failures() - before; };
  const auto refused = [&] {
    const auto events = b.watch().events();
    return std::count_if(events.begin(), events.end(), [](const auto& event) {
      return event.native == kIllegalAddress && is_end(event.call);
    });
  };
  b.watch().forget();
  for (const auto call : kMemoryFrees) b.watch().fail_always(call, kIllegalAddress);
  const bool said = act();
  // A manager may free on a thread of its own.
  for (int i = 0; i < 50 && refused() != 0 && !said && heard() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto call : kMemoryFrees) b.watch().fail_always(call, 0);
  b.expect(refused() == 0 || said || heard() != 0,
           text::format("{}, each free answering {}", done, code(kIllegalAddress)),
           text::format("the driver refused {} frees, and nobody is told", refused()),
           text::format("{} as the answer of the call that made them, or free_failed()",
                        code(kIllegalAddress)));
  // The manager may also tell of calls that fail because a free was refused, as the driver refuses
  // to end a range that is still mapped. A manager that frees on its own thread may tell here of
  // frees that failed earlier.
  const auto failed = [&] {
    const auto events = b.watch().events();
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(), [](const auto& event) { return event.native != 0; }));
  };
  b.expect(b.observer().is_told_elsewhere() || heard() <= failed(),
           text::format("{}, each free answering {}", done, code(kIllegalAddress)),
           text::format("{} calls of the driver failed, and {} failures are told, by answers of "
                        "free() and by free_failed()",
                        failed(), heard()),
           "each is told once");
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
      return false;
    });
  }
  judge("flush()", [&] { return !b.manager().flush(); });
  for (int i = 0; i < 40; ++i) {
    auto block = i % 2 == 0 ? b.try_managed(4_KiB) : b.try_hosted(64, {.mapped = true});
    if (!block) continue;
    judge("the end of one block of many, which makes the frees that waited", [&] {
      block->drop();
      return false;
    });
  }
  { const std::array idle{b.try_memalloc(3_MiB), b.try_memalloc(3_MiB), b.try_memalloc(24_MiB)}; }
  judge("trim(0)", [&] { return !b.manager().trim(0); });
  // The answer of a request says nothing of frees. Idle memory is released in it, and frees that
  // wait are made.
  for (const auto size : {3_MiB, 24_MiB}) {
    // Its answer may be of a free that was refused before.
    static_cast<void>(b.manager().flush().has_value());
    { const std::array idle{b.try_memalloc(size), b.try_memalloc(size)}; }
    judge(text::format("a request for more than there is, after blocks of {} bytes", size), [&] {
      const auto info = b.device().mem_get_info();
      const auto out = info ? b.try_memalloc(info->free + 2_MiB) : info.error();
      return false;
    });
  }
  for (const bool pins : {false, true}) {
    const auto ask = [&] {
      b.watch().fail(Call::mem_host_get_device_pointer, {kIllegalAddress});
      const auto block =
          pins ? b.try_pin(b.buffer(), {.mapped = true}) : b.try_hosted(4_KiB, {.mapped = true});
      b.watch().fail(Call::mem_host_get_device_pointer, {});
      return false;
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
        return false;
      });
    }
  }
  const auto alive = one_of_each_kind(b);
  judge("reset() with memory of each kind alive", [&] {
    b.reset();
    return false;
  });
  const auto again = one_of_each_kind(b);
  judge("the manager's end with memory of each kind alive", [&] {
    b.end_manager();
    return false;
  });
}

// The words of an error.

void check_words(Bench& b) {
  using std::chrono::steady_clock;
  b.untraceable();
  auto& manager = b.manager();
  const auto range = b.buffer();
  const auto pinned = b.try_pin(range);
  /// A request that fails, whatever the device has.
  struct Refused {
    std::string_view done;
    std::function<std::string()> words;
  };
  const auto words_of = [](const auto& made) {
    return made ? std::string() : std::string(made.error().message);
  };
  constexpr auto kHuge = (std::uint64_t{1} << 61) + 4_KiB;
  const std::array all{
      Refused{"memalloc of more than 2^61 bytes",
              [&] { return words_of(manager.memalloc(kHuge)); }},
      Refused{"memalloc of more than 2^62 bytes",
              [&] { return words_of(manager.memalloc(2 * kHuge)); }},
      Refused{"memalloc(0)", [&] { return words_of(manager.memalloc(0)); }},
      Refused{"mempin of a region that is pinned",
              [&] { return pinned ? words_of(manager.mempin(range, {})) : std::string(); }},
      Refused{"memhostalloc of more than 2^61 bytes",
              [&] { return words_of(manager.memhostalloc(kHuge, {})); }}};
  std::array<const Refused*, 2> pair{};
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
  std::mutex mutex;
  std::array<std::string, 2> wrong;
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
  for (std::size_t at = 0; at < 2; ++at) {
    b.expect(wrong[at].empty(),
             text::format("{}, which fails, while another thread's {} fails", pair[at]->done,
                          pair[1 - at]->done),
             text::format("last_error() says \"{}\"", text::printable(wrong[at], 120)),
             text::format("\"{}\", as without the other thread", text::printable(words[at], 120)));
  }
  b.watch().forgive();
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
           for (const auto native : {1, 700, 719, 999}) {
             with_failing_driver(b, native, [&](std::string_view done, const Error& error) {
               b.expect(error.native == native, done,
                        text::format("{}: {}", code(error.native), describe(error)), code(native));
             });
           }
         }},

    {.id = "errors/out_of_memory",
     .rule = "Where the driver has no memory, the answer is out of memory.",
     .source = "emm_plugin.h: 2 is out of memory; NBEP 7",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           constexpr std::int32_t kOutOfMemory = 2;
           with_failing_driver(b, kOutOfMemory, [&](std::string_view done, const Error& error) {
             b.expect(error.code == Errc::out_of_memory, done,
                      text::format("{}: {}", code(error.native), describe(error)),
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
     .may_fail_with = "ERR-2 PD-11",
     .check =
         [](Bench& b) {
           if (b.is_numba()) return b.not_applicable("as Numba, a flush stops at the first: PD-11");
           if (b.subject().is_pair)
             return b.not_applicable("functions that answer no code have nobody to tell");
           check_frees_told(b);
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
                    answer ? "" : describe(answer.error()), code(kIllegalAddress));
           if (answer) {
             const auto block = manager.memalloc(64_KiB);
             b.expect(block || block.error().code == Errc::not_supported,
                      text::format("{}, which it answers with success; then memalloc(65536)", done),
                      block ? "" : describe(block.error()), "memory");
           }
           b.expect_ok(text::format("{}; then once more, the driver being well", done),
                       manager.initialize());
           const auto block = b.any(64_KiB);
           b.expect(block.alive(), "memalloc(65536) after that", "no memory", "memory");
         }},

    {.id = "errors/options",
     .rule = "An option that the manager does not know is refused.",
     .source = "emm_plugin.h: create answers EMM_INVALID_VALUE to options that it does not know",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (!b.subject().with_options)
             return b.not_applicable("this manager cannot be asked with other options");
           for (const std::string_view option :
                {"no_such_option=1", "no_such_option", "no_such_option=", "no_such_option=,name"}) {
             const auto found = b.subject().with_options(option);
             const auto made = found ? found->make({}) : found.error();
             const bool refused = !made && (made.error().code == Errc::usage ||
                                            made.error().code == Errc::invalid_value);
             b.expect(refused, text::format("the option {}", option),
                      made ? "a manager" : describe(made.error()), code(1));
           }
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
             "for, and no slot throws.",
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
                    trimmed ? "" : describe(trimmed.error()), "success");
           const auto next = b.any(64_KiB);
           ask("after trim(0)");
           b.reset();
           ask("after reset");
         }},

    {.id = "abi/harmless",
     .rule = "No operation crashes, hangs, ends the process or damages its heap.",
     .source = "emm_plugin.h: no slot may end the process",
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
           // Where nothing is there is nothing to export; the manager goes on.
           const bool was_refused = b.watch().first_uninvited().has_value();
           const auto none = b.manager().get_ipc_handle({.device_pointer = {64}, .size = 64});
           if (!was_refused) b.watch().forgive();
           b.expect(!none, "get_ipc_handle of 64 bytes at address 64, where nothing is", "a handle",
                    "an error, or not_supported");
           b.any(100).drop();
           b.reset();
         }},
};

}  // namespace

extern constinit const ClauseGroup errors_clauses{"Beyond the catalogue: errors and answers",
                                                  kErrorsClauses};

}  // namespace emm
