#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "trace/lifetimes.hpp"
#include "trial/setting.hpp"

namespace emm::trial {

// Capacities below an answer that are tried: one of them may serve, too.
inline constexpr std::size_t kTriesBelow = 32;
inline constexpr std::uint64_t kNearAbove =
    std::uint64_t{64} << 20;  ///< How far above an answer each kStep is tried.

/// What trials of a trace at several capacities say, and the answer that follows. A capacity is the
/// bytes of each device, a multiple of kStep.
///
/// A trace passes at a capacity if a replay would exit with 0 there. A request that the trace
/// expects to fail must fail, so a trace may pass at no capacity, or only below one.
struct Answer {
  std::map<std::uint64_t, bool> trials;  ///< By capacity: whether the trace passed.
  /// The smallest capacity that passes and from which no larger one that was tried fails, except
  /// those from `fails_from` on. Empty if no capacity was found to pass.
  std::optional<std::uint64_t> capacity;
  /// The smallest capacity from which the trace fails again, because a request that it expects to
  /// fail is served there.
  std::optional<std::uint64_t> fails_from;

  /// Answers whether the trace fails with kStep less. False too if the search was interrupted
  /// before, or if there is no smaller capacity.
  bool is_least() const;
  /// The capacities tried on each side of the answer, in order.
  std::vector<std::uint64_t> below(bool passing_only) const;
  std::vector<std::uint64_t> above(bool failing_only) const;
  /// The smallest capacity that passes: `capacity` or, by luck, less.
  std::optional<std::uint64_t> least_passing() const;
};

/// What trials of one trace at several capacities say.
struct Fit {
  trace::CountedRequests asked = trace::CountedRequests::all;
  Answer answer;                    ///< Answers the question that was asked.
  std::optional<Answer> other;      ///< Answers the other one, if the recording refused a request.
  std::uint64_t refused = 0;        ///< Requests for device memory that the recording refused.
  std::uint64_t refused_again = 0;  ///< Those of them that fail at the answer too.
  /// How the trial one step below the answer failed; empty if there is no smaller device. If no
  /// capacity passes, how the trial at kCapacityMost failed.
  std::optional<log::Summary> below;
  std::optional<log::Summary> above;  ///< How the trial at `fails_from` failed.
  std::uint64_t peak_reserved = 0;    ///< In the trial at the answer.
  /// What the driver's calls take at the answer, in nanoseconds of an H200's. Empty if the manager
  /// calls another driver than the simulated device's.
  std::optional<std::uint64_t> driver_ns;
  std::uint64_t trials = 0;     ///< Count of replays for both questions.
  bool judged_nothing = false;  ///< There was nothing to judge at any capacity.
  bool interrupted = false;     ///< The search was interrupted; the answers hold what is known.
  /// Set if a call of a foreign manager did not return, which ended the search.
  std::optional<log::Abnormal> hung;

  /// Returns the answer to that question; null if it was not asked.
  const Answer* of(trace::CountedRequests asked) const noexcept;
};

struct FitOptions {
  trace::CountedRequests asked =
      trace::CountedRequests::all;  ///< The question that is answered first.
  std::uint64_t start = 0;          ///< Where the search begins: what the program needs.
  std::uint64_t other_start = 0;    ///< The same for the other question.
  std::uint64_t hint = 0;           ///< A capacity that may pass where others do not; 0 if none.
  std::size_t jobs = 1;  ///< Trials at once, for managers in this process; 0: one per processor.
  /// Called after each trial, by one thread at a time. `expected` estimates how many there will be.
  std::function<void(std::uint64_t trials, std::uint64_t expected)> progress{};
};

/// Searches for the smallest capacity at which `trace` passes: by doubling steps up from `start`
/// (or down, if it passes there), then by halving. A manager may fail with more memory where less
/// is enough, so capacities above the answer are tried too: each kStep of kNearAbove, then each
/// hundredth up to twice the answer. If one fails, the answer lies above it, and the same is tried
/// again. Last, kTriesBelow capacities below the answer are tried: half of them next to it, half
/// evenly down to `start`. Nothing is known of other capacities. Errors are those of a run that
/// leaves nothing to report.
Result<Fit> fit(const trace::Trace& trace, const Setting& setting, const FitOptions& options);

}  // namespace emm::trial
