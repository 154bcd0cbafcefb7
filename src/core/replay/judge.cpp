#include "replay/judge.hpp"

#include <algorithm>
#include <cstring>

#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"
#include "log/summary_bytes.hpp"

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;
using trace::Outcome;

// A summary lists as many; all are counted.
constexpr std::size_t kViolationsKept = 100;

bool fails(Outcome outcome) noexcept {
  return outcome != Outcome::none && outcome != Outcome::any && outcome != Outcome::ok;
}

/// Answers whether `outcome` is as expected. Outcome::error expects any failure.
bool meets(Outcome outcome, Outcome expected) noexcept {
  if (expected == Outcome::none || expected == Outcome::any) return true;
  return outcome == expected || (expected == Outcome::error && fails(outcome));
}

/// Answers whether the recorded program's request for device memory ran out of memory.
bool was_refused(const Event& event) noexcept {
  return asks_for_device_memory(event.op) && event.recorded() == Outcome::oom &&
         event.expected() == Outcome::none;
}

void describe_idle(log::Failure& failure, const MemoryStatistics& statistics) {
  if (!statistics.reserved_bytes.current || !statistics.active_bytes.current) return;
  failure.idle_bytes = *statistics.reserved_bytes.current - *statistics.active_bytes.current;
  failure.largest_idle_bytes = statistics.largest_free_bytes;
  if (statistics.allocated_bytes.current) {
    failure.waiting_bytes = *statistics.active_bytes.current - *statistics.allocated_bytes.current;
  }
}

}  // namespace

Outcome outcome_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::out_of_memory:
      return Outcome::oom;
    case Errc::not_supported:
      return Outcome::unsupported;
    case Errc::invalid_value:
    case Errc::already_registered:
    case Errc::not_registered:
    case Errc::dead_pointer:
      return Outcome::invalid;
    case Errc::not_initialized:
    case Errc::invalid_context:
    case Errc::context_destroyed:
    case Errc::not_found:
    case Errc::version_mismatch:
    case Errc::parse_error:
    case Errc::unknown_format:
    case Errc::io_error:
    case Errc::no_device:
    case Errc::driver_error:
    case Errc::usage:
    case Errc::interrupted:
    case Errc::internal:
      return Outcome::error;
  }
  return Outcome::error;
}

void keep_summary(std::span<std::byte> memory, KeptHeader::Phase phase,
                  const log::Summary& summary) {
  if (memory.empty()) return;
  auto& kept = *reinterpret_cast<KeptHeader*>(memory.data());
  const auto bytes = log::to_bytes(summary);
  if (bytes.size() > KeptHeader::kSummaryBytes) return;
  const auto other = 1 - kept.current.load();
  std::memcpy(memory.data() + KeptHeader::summary_at(other), bytes.data(), bytes.size());
  kept.sizes[other] = bytes.size();
  kept.current.store(other);
  kept.phase.store(phase);
}

bool was_never_held(const Event& event) noexcept {
  return fails(event.recorded()) && event.expected() == Outcome::none;
}

Event free_of(Event event) noexcept {
  event.op = Op::free;
  event.outcomes = 0;
  return event;
}

/// Answers whether `expect` says that this operation fails with `outcome`. Without `expect`, the
/// recording decides.
bool Judge::is_expected_failure(const Event& event, Outcome outcome) const noexcept {
  const auto expected = event.expected();
  if (expected == Outcome::none) {
    const bool counts =
        state_.options.refusals_fail && outcome == Outcome::oom && was_refused(event);
    return fails(event.recorded()) && !counts;
  }
  return expected == Outcome::any || (fails(expected) && meets(outcome, expected));
}

void Judge::count_against_recording(const Event& event, Outcome outcome) noexcept {
  if (state_.pass != 0) return;  // only the first pass is compared with the recording
  const bool worked = outcome == Outcome::ok;
  auto& counts = summary.outcomes;
  if (event.recorded() == Outcome::ok) {
    ++(worked ? counts.succeeded_as_recorded : counts.only_recording_succeeded);
  } else if (fails(event.recorded())) {
    ++(worked ? counts.only_replay_succeeded : counts.failed_as_recorded);
  }
  if (outcome == Outcome::oom && was_refused(event)) ++summary.refused_again;
}

void Judge::set_first_failure(Outcome outcome, const std::string& words) {
  summary.first_failure = capture(outcome, words);
  keep(KeptHeader::Phase::running);
}

void Judge::judge(const Event& event, Outcome outcome, const Error* error) {
  count_against_recording(event, outcome);
  if (outcome == Outcome::unsupported) count_declined(event.op, describe(*error));

  const auto expected = event.expected();
  const bool worked = outcome == Outcome::ok;
  const bool is_expected = !worked && is_expected_failure(event, outcome);
  // Managers may decline what they do not support, unless the trace expects success.
  const bool may_decline = outcome == Outcome::unsupported && expected != Outcome::ok;
  if (!worked && !is_expected && !may_decline) {
    ++accounts_.pass.failures;
    if (!summary.first_failure) {
      set_first_failure(outcome, error != nullptr ? describe(*error) : std::string());
    }
  }
  if (!meets(outcome, expected) && !may_decline) {
    const auto what = names_memory(event.op) ? text::format("{} of {}", trace::name(event.op),
                                                            state_.trace.name(event.id))
                                             : std::string(trace::name(event.op));
    add_violation(
        log::Violation::Kind::unexpected,
        text::format("{}: {}, expected {}", what, trace::name(outcome), trace::name(expected)));
  }
  if (outcome == Outcome::oom && !is_expected &&
      state_.options.on_oom == ReplayOptions::OnOom::stop) {
    state_.stop = true;
    summary.stopped_at = state_.at;
  }
}

void Judge::judge_refusal(const Event& event, const Error& error, Times times) {
  const auto outcome = outcome_of(error);
  // A request that should fail counts in no peak. A request that the recording refused counts only
  // during the call; any other counts until its memory would have been freed.
  const bool was_to_succeed = asks_for_device_memory(event.op) && !was_refused(event) &&
                              !is_expected_failure(event, outcome);
  const auto bytes = was_to_succeed || was_refused(event) ? event.size : 0;
  accounts_.unserved_bytes.add(bytes);
  accounts_.raise_requested(accounts_.live_bytes);
  if (!was_to_succeed) accounts_.unserved_bytes.subtract(bytes);
  held_.refused[static_cast<std::uint32_t>(event.id)] = {.bytes = was_to_succeed ? bytes : 0,
                                                         .outcome = outcome};
  // The manager may have taken memory from the device before it failed.
  if (state_.options.checks) accounts_.measure_reserved(contexts_[event.context]);
  log_.add(event, outcome, times, 0, event.size);
  judge(event, outcome, &error);
}

void Judge::skip_unmade(const Event& event) {
  ++accounts_.pass.unmade;
  if (event.op != Op::free && event.op != Op::close_ipc_handle) return;
  const auto found = held_.refused.find(static_cast<std::uint32_t>(event.id));
  if (found == held_.refused.end()) return;
  accounts_.unserved_bytes.subtract(found->second.bytes);
  held_.refused.erase(found);
}

void Judge::add_violation(log::Violation::Kind kind, const std::string& words) {
  ++summary.violation_count;
  if (!summary.first_failure) summary.first_failure = capture(Outcome::ok, words);
  if (summary.violations.size() == kViolationsKept) return;
  const auto at = state_.at;
  const auto line = state_.trace.holds(at) ? state_.trace[at].line : 0;
  summary.violations.push_back({.kind = kind, .event = at, .line = line, .words = words});
  keep(KeptHeader::Phase::running);
}

void Judge::count_declined(Op op, const std::string& why) {
  if (state_.pass != 0) return;
  auto& declined = summary.declined;
  auto found =
      std::find_if(declined.begin(), declined.end(), [&](const auto& one) { return one.op == op; });
  if (found == declined.end()) found = declined.insert(found, {.op = op, .count = 0, .why = why});
  ++found->count;
  keep(KeptHeader::Phase::running);
}

void Judge::judge_reports(log::Pass& pass) {
  if (!has_reports()) return;
  const auto reported = contexts_.reports().failures();
  const auto known = std::exchange(judged_, reported);
  // The failures are attributed to the event that caused the last one.
  const auto& trace = state_.trace;
  const auto here = std::exchange(state_.at, std::min<std::uint64_t>(reported.event, trace.size()));
  if (const auto failed = reported.frees - known.frees; failed != 0) {
    pass.failures += failed;
    // free() had already counted each as a success.
    if (trace.holds(state_.at) && trace[state_.at].op == Op::free) {
      pass.frees -= std::min(pass.frees, failed);
    }
    if (!summary.first_failure) set_first_failure(Outcome::error, reported.last_free);
  }
  if (const auto failed = reported.calls - known.calls; failed != 0) {
    summary.violation_count += failed - 1;
    if (!summary.first_failure) summary.first_failure = capture(Outcome::error, reported.last_call);
    add_violation(log::Violation::Kind::contract, reported.last_call);
  }
  state_.at = here;
}

// Takes the trace as an argument, because a dead process's run has an invalid reference to its
// trace.
void name_event(log::Failure& failure, const trace::Trace& trace) {
  failure.op = Op::end;
  if (!trace.holds(failure.event)) return;
  const auto& event = trace[failure.event];
  failure.line = event.line;
  failure.op = event.op;
  if (names_memory(event.op)) failure.id = trace.name(event.id);
  failure.size = event.size;
  failure.thread = trace.thread_number(event.thread);
  failure.stream = trace.streams()[index(event.stream)];
  failure.context = trace.contexts()[index(event.context)].name;
  failure.frames = trace.site_frames(event.site);
}

log::Failure Judge::capture(Outcome outcome, std::string error) {
  const EngineWork work(clock_);
  log::Failure failure;
  failure.event = state_.at;
  failure.outcome = outcome;
  failure.error = std::move(error);
  failure.live_bytes =
      accounts_.live_bytes + static_cast<std::uint64_t>(accounts_.thread_live_bytes());
  failure.reserved_bytes = accounts_.reserved_bytes;
  failure.holders = held_.biggest(state_);
  name_event(failure, state_.trace);
  if (!state_.trace.holds(state_.at)) return failure;

  if (auto& context = contexts_[state_.trace[state_.at].context]; context.open()) {
    if (const auto info = context.driver().mem_get_info()) failure.free_bytes = info->free;
    if (const auto largest = context.driver().largest_free_bytes(); largest != 0) {
      failure.largest_free_bytes = largest;
    }
    describe_idle(failure, context.context().memory_manager().statistics());
  }
  return failure;
}

}  // namespace emm::replay
