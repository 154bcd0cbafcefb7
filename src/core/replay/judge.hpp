#pragma once

#include <cstdint>
#include <string>

#include "log/summary.hpp"
#include "replay/accounts.hpp"
#include "replay/context_set.hpp"
#include "replay/holdings.hpp"
#include "replay/kept_header.hpp"
#include "replay/record_log.hpp"
#include "replay/replay_clock.hpp"
#include "replay/replay_state.hpp"

namespace emm::replay {

/// Answers whether the recorded program was refused the memory that `event` has now made. The
/// program never held it, so the replay frees it at once with free_of().
bool was_never_held(const trace::Event& event) noexcept;
trace::Event free_of(trace::Event event) noexcept;

/// Answers whether `expect` and the recording both allow this event to succeed.
inline bool expects_success(const trace::Event& event) noexcept {
  const auto succeeds = [](trace::Outcome outcome) {
    return outcome == trace::Outcome::none || outcome == trace::Outcome::ok ||
           outcome == trace::Outcome::any;
  };
  return succeeds(event.expected()) && succeeds(event.recorded());
}

/// Compares each outcome with the expected and the recorded one, and writes the findings into the
/// summary. One thread at a time, except has_reports().
class Judge {
 public:
  Judge(ReplayState& state, ReplayClock& clock, Accounts& accounts, ContextSet& contexts,
        Holdings& held, RecordLog& log) noexcept
      : state_(state),
        clock_(clock),
        accounts_(accounts),
        contexts_(contexts),
        held_(held),
        log_(log) {}

  log::Summary summary;

  /// Counts the outcome of `event`, and notes a failure or a violation if it should have been
  /// another. `error` is null if the event succeeded.
  void judge(const trace::Event& event, trace::Outcome outcome, const Error* error);
  /// Records an operation on no memory, and judges it.
  template <class T>
  void record_and_judge(const trace::Event& event, const Result<T>& result, Times times) {
    log_.add(event, outcome_of(result), times, 0, 0);
    judge(event, outcome_of(result), error_of(result));
  }
  /// Counts, records and judges a request for memory that failed.
  void judge_refusal(const trace::Event& event, const Error& error, Times times);
  /// Counts `event` as skipped, because it names memory that was never made.
  void skip_unmade(const trace::Event& event);
  void add_violation(log::Violation::Kind kind, const std::string& words);
  /// Counts that the manager declined `op`, which it does not support.
  void count_declined(trace::Op op, const std::string& why);
  bool has_reports() const noexcept { return contexts_.reports().has_more_than(judged_.all); }
  /// Judges the failures that managers have reported since the last call, as failures of `pass`.
  void judge_reports(log::Pass& pass);
  /// Describes the event being executed, and the state before it.
  log::Failure capture(trace::Outcome outcome, std::string error);
  /// Stores the findings so far where another process can read them.
  void keep(KeptHeader::Phase phase) { keep_summary(state_.options.kept, phase, summary); }

 private:
  bool is_expected_failure(const trace::Event& event, trace::Outcome outcome) const noexcept;
  void count_against_recording(const trace::Event& event, trace::Outcome outcome) noexcept;
  void set_first_failure(trace::Outcome outcome, const std::string& words);

  ReplayState& state_;
  ReplayClock& clock_;
  Accounts& accounts_;
  ContextSet& contexts_;
  Holdings& held_;
  RecordLog& log_;
  ManagerReports::Failures judged_;  ///< The failures that judge_reports() has judged.
};

/// Fills in what the trace says of event `failure.event`; Op::end if that is behind the last event.
void name_event(log::Failure& failure, const trace::Trace& trace);

}  // namespace emm::replay
