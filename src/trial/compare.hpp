#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "emm/manager_entry.hpp"
#include "inspect/need.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::trial {

/// An interval for the median of a distribution, from a sample: the sample's median, and the
/// narrowest two of its numbers between which the true median lies with `confidence`. It assumes
/// nothing about the distribution.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
  double confidence = 0;  ///< What was asked for or more, but with too few numbers for that.
};
/// REQUIRES: there is a number.
MedianInterval median_interval(std::vector<double> numbers, double confidence = 0.95);

/// The interval of the ratios of what was measured in the same rounds, with 99 % confidence, so
/// that it may be looked at again and again. Nothing where there is none.
std::optional<MedianInterval> ratio_of(const std::vector<double>& numbers,
                                       const std::vector<double>& over);

/// One manager's part in a comparison. Times are nanoseconds an event, on the comparison's clock.
struct Contestant {
  std::string manager;
  /// By round: the time of the first pass, and the median of the others.
  std::vector<double> first_ns{}, warm_ns{};
  /// What the driver's calls cost by the simulated device's model, of the last pass; where the
  /// comparison's clock is another.
  std::optional<double> simulated_ns{};
  /// By round, of an event in all passes; empty where the machine does not count.
  std::vector<double> instructions{};
  MedianInterval first{}, warm{};
  MedianInterval over_first{};  ///< `warm` over the first manager's, round by round.
  log::Summary judged{};        ///< One pass with all checks: what was served, what was reserved.
  int exit_code = 0;            ///< That a replay would end with: 0, 1 or 3.
};

/// Why a manager reserved less than a bound.
enum class Below : std::uint8_t {
  not_served,   ///< Not all that the trace asks for was served.
  not_counted,  ///< Less than was live: it serves some with memory that the device does not count.
  hazard,       ///< It handed memory to another stream that its last user was not done with.
  waits,        ///< Less than the no-wait need alone: it waits, or has streams wait.
};
/// Why a manager reserved less than a bound. Nothing where it did not.
std::optional<Below> below_bound(const log::Summary& judged, std::uint64_t reserved,
                                 std::uint64_t bound, std::uint64_t peak_live);

/// A foreign manager whose process ended too early.
struct CutOff {
  std::string manager;
  std::string words;  ///< A sentence: how its process ended.
  int exit_code = 0;  ///< That a replay would end with.
};

struct Comparison {
  std::string device, clock;
  std::uint64_t rounds = 0, passes = 0;
  /// What the replay itself takes of an event, by a manager that does nothing; nothing on a
  /// simulated clock.
  std::optional<MedianInterval> engine;
  /// The needs of each device that is asked for memory: the least for any manager, and for one that
  /// never waits.
  std::vector<inspect::Need> needs;
  std::vector<Contestant> contestants;
  std::vector<std::string> notes;  ///< On the device, for a person.
  /// Those whose process ended before they had answered. They are no contestants.
  std::vector<CutOff> cut_off;
  double threshold = 0;      ///< As CompareOptions has it.
  bool unmeasured = false;   ///< One of them did so while it was timed: there are no times.
  bool interrupted = false;  ///< Before all was measured: the contestants are not to be shown.
};

struct CompareOptions {
  std::string device = "auto";
  bool host_clock = false;  ///< Measure also where the device has a clock of its own.
  /// Nothing: 1 on a simulated clock, else as many as `threshold` needs and `time_ns` allows.
  std::optional<std::uint64_t> rounds{};
  /// After the first, in each round. Nothing: 5, or more of a short trace on a clock that measures.
  std::optional<std::uint64_t> passes{};
  /// The ratio up to which two are the same, less 1. Rounds go on until the interval of each ratio
  /// of times reaches no further than half of this from its median, and tells.
  double threshold = 0.02;
  std::uint64_t time_ns = 30'000'000'000;  ///< After which no further round begins.
  std::string peer_program{};
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
};

/// Replays `trace` by each manager on devices of its own: once with all checks, then in rounds, the
/// managers in turn and each round beginning with another, without the checks, so that the times
/// are the managers'. On a simulated clock the times are the device's calls, and the same in every
/// round. On one that measures, each turn is a process of its own. On a simulated device those of
/// a round share a processor, and the time is what the processor took for them.
/// Errors are those of a run that leaves nothing to report.
Result<Comparison> compare(const trace::Trace& trace, const std::vector<ManagerFactory>& managers,
                           const CompareOptions& options);

}  // namespace emm::trial
