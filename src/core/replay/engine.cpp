#include "replay/engine.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "log/summary_bytes.hpp"
#include "replay/kept_header.hpp"
#include "replay/replay_run.hpp"

namespace emm::replay {

struct Engine::State {
  ReplayOptions options;
  ReplayRun run;

  State(const trace::Trace& trace, Stack& stack, ReplayOptions chosen, log::RecordSink* log)
      : options(std::move(chosen)), run(trace, stack, options, log) {}
};

std::unique_ptr<Engine::State, Engine::End> Engine::begin(const trace::Trace& trace, Stack& stack,
                                                          ReplayOptions options,
                                                          log::RecordSink* log) {
  static_assert(sizeof(State) <= KeptHeader::kRunBytes &&
                sizeof(KeptHeader) <= KeptHeader::kRunBytes);
  const auto kept = options.kept;
  if (kept.empty()) {
    return {new State(trace, stack, std::move(options), log), End{}};
  }
  EMM_ASSERT(kept.size() == kKeptBytes);
  new (kept.data()) KeptHeader;
  auto* state =
      new (kept.data() + KeptHeader::kRunBytes) State(trace, stack, std::move(options), log);
  return {state, End{.in_place = true}};
}

void Engine::End::operator()(State* state) const {
  if (in_place) {
    std::destroy_at(state);
  } else {
    delete state;
  }
}

Engine::Engine(const trace::Trace& trace, Stack& stack, ReplayOptions options, log::RecordSink* log)
    : state_(begin(trace, stack, std::move(options), log)) {}

Engine::~Engine() = default;

Result<log::Summary> Engine::run() { return state_->run.run(); }

std::optional<log::Summary> found_so_far(std::span<const std::byte> kept, const trace::Trace& trace,
                                         log::Abnormal how) {
  // Only numbers of the run are read: its pointers are invalid without its process.
  const auto& header = *reinterpret_cast<const KeptHeader*>(kept.data());
  if (header.phase.load() == KeptHeader::Phase::none) return std::nullopt;
  const auto which = header.current.load() % 2;
  const auto size = std::min<std::uint64_t>(header.sizes[which], KeptHeader::kSummaryBytes);
  const auto bytes = kept.subspan(KeptHeader::summary_at(which), static_cast<std::size_t>(size));
  auto summary =
      log::summary_from_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!summary) return std::nullopt;
  const auto& run =
      reinterpret_cast<const Engine::State*>(kept.data() + KeptHeader::kRunBytes)->run;
  if (header.phase.load() == KeptHeader::Phase::running) {
    run.add_numbers(*summary);
    if (run.has_threads()) {
      summary->notes.emplace_back(
          "what the threads had counted is lost with their process: there were more events, "
          "allocations and frees than are said here");
    }
  }
  if (!summary->first_failure) summary->first_failure = run.ended_at(trace, how);
  ++summary->pass.failures;  // the call that did not return
  summary->abnormal = std::move(how);
  return summary;
}

bool found_failure(const log::Summary& summary, bool leaks_fail) noexcept {
  if (summary.violation_count != 0 || summary.abnormal) return true;
  const auto failed = [&](const log::Pass& pass) {
    return pass.failures != 0 || pass.hazards != 0 || (leaks_fail && pass.leaked != 0);
  };
  return failed(summary.pass) ||
         std::any_of(summary.repeats.begin(), summary.repeats.end(), failed);
}

bool judged_nothing(const log::Summary& summary) noexcept {
  const auto& pass = summary.pass;
  return pass.events == 0 || (pass.allocs == 0 && pass.failures == 0 && !summary.declined.empty());
}

int exit_code(const log::Summary& summary, bool leaks_fail) noexcept {
  // A shell's exit code of a process that a signal ended, less the signal.
  constexpr int kSignalled = 128;
  if (summary.abnormal && summary.abnormal->signal != 0)
    return kSignalled + summary.abnormal->signal;
  if (found_failure(summary, leaks_fail)) return 1;
  return judged_nothing(summary) ? 3 : 0;
}

}  // namespace emm::replay
