#include <array>

#include "base/units.hpp"
#include "conformance/bench.hpp"
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
    if (const auto later = ask(); later && later->code != Errc::not_supported)
      b.expect(false, text::format("{}; then once more, the driver being well", done),
               describe(*later), "memory");
    trial.expect(true, {}, {}, {});
    b.take(trial);
  }
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

    {.id = "errors/options",
     .rule = "An option that the manager does not know is refused.",
     .source = "emm_plugin.h: create answers EMM_INVALID_VALUE to options that it does not know",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           constexpr std::string_view kOption = "no_such_option=1";
           if (!b.subject().with_options)
             return b.not_applicable("this manager cannot be asked with other options");
           const auto found = b.subject().with_options(kOption);
           const auto made = found ? found->make({}) : found.error();
           const bool refused = !made && (made.error().code == Errc::usage ||
                                          made.error().code == Errc::invalid_value);
           b.expect(refused, text::format("the option {}", kOption),
                    made ? "a manager" : describe(made.error()), code(1));
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
           b.reset();
         }},
};

}  // namespace

extern constinit const ClauseGroup errors_clauses{"Beyond the catalogue: errors and answers",
                                                  kErrorsClauses};

}  // namespace emm
