#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "inspect/lifetimes.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

inline constexpr std::size_t kTriesBelow = 32;
inline constexpr std::uint64_t kNearAbove =
    std::uint64_t{64} << 20;  ///< Above an answer each kStep is tried, so far.

/// What is known of a trace at several capacities, and the answer that follows. Bytes, of each
/// device, in whole kSteps.
///
/// A trace passes at a capacity where a replay's exit code there would be 0. So a request that the
/// trace expects to fail must fail, and may make a trace that passes at no capacity, or only below
/// one.
struct Answer {
  std::map<std::uint64_t, bool> trials;  ///< Each capacity that is known: does the trace pass?
  /// The smallest that it passes at and from which no larger one that was tried fails, but for
  /// those from `fails_from` on. Nothing where no capacity was found that it passes at.
  std::optional<std::uint64_t> capacity;
  /// Where it passes at no larger capacity, as what it expects to fail is served: the smallest such
  /// one.
  std::optional<std::uint64_t> fails_from;

  /// Is it known to fail with kStep less? Else the answer was interrupted, or there is no less.
  bool is_least() const;
  /// Of the trials, in order.
  std::vector<std::uint64_t> below(bool passing_only) const;
  std::vector<std::uint64_t> above(bool failing_only) const;
  /// The smallest that the trace passes at, `capacity` or, by luck, less.
  std::optional<std::uint64_t> least_passing() const;
};

/// What trials of one trace at several capacities say.
struct Fit {
  inspect::Asked asked = inspect::Asked::all;
  Answer answer;                ///< To what was asked.
  std::optional<Answer> other;  ///< To the other question, where the recording refused something.
  std::uint64_t refused = 0;    ///< Requests for device memory that the recording refused,
  std::uint64_t refused_again = 0;  ///< and how many of them fail at `answer`'s capacity.
  /// How the trial one step below the answer failed; nothing where there is no smaller device.
  /// Where no capacity passes, how the one at kCapacityMost went wrong.
  std::optional<log::Summary> below;
  std::optional<log::Summary> above;  ///< How the one at `fails_from` failed.
  std::uint64_t peak_reserved = 0;    ///< At the answer.
  std::uint64_t trials = 0;           ///< Replays, of both.
  bool judged_nothing = false;        ///< There was nothing to judge at any capacity.
  bool interrupted = false;           ///< Before all was tried; the answers hold what is known.
  /// A call of a foreign manager did not return in a trial, with which the search ended: how.
  std::optional<log::Abnormal> hung;

  /// The answer where all is asked for, or where only what was served is.
  const Answer* of(inspect::Asked asked) const noexcept;
};

struct FitOptions {
  inspect::Asked asked = inspect::Asked::all;  ///< The question that is answered first.
  std::uint64_t start = 0;                     ///< Where to begin: what the program needs,
  std::uint64_t other_start = 0;               ///< and what it does by the other question.
  std::uint64_t hint = 0;  ///< A capacity that may be right where others are not; 0: none.
  std::function<void(std::uint64_t trials)> progress{};  ///< After each trial.
};

/// Looks for the smallest capacity at which `trace` passes: by doubling steps up from `start` (or
/// down, where it passes there), then by halving. Managers are not monotone, so others are tried
/// then: above it each kStep of kNearAbove, and then every hundredth of it up to twice as much;
/// where one fails, the answer is above that, and the same is tried above the new one. At last
/// kTriesBelow below it: half of them next to it, half evenly down to `start`. Of capacities that
/// were not tried nothing is known. Errors are those of a run that leaves nothing to report.
Result<Fit> fit(const trace::Trace& trace, const Setting& setting, const FitOptions& options);

}  // namespace emm::trial
