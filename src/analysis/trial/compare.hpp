#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/members.hpp"
#include "base/result.hpp"
#include "emm/manager_entry.hpp"
#include "inspect/memory_need.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::trial {

/// An interval for the median of a distribution, from a sample. `low` and `high` are the closest
/// two numbers of the sample between which the true median lies with `confidence`. Nothing is
/// assumed about the distribution.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
  double confidence = 0;  ///< As requested or more; less if there are too few numbers.
};
EMM_MEMBERS_OF(MedianInterval, median, low, high, confidence)
/// REQUIRES: `numbers` is not empty.
MedianInterval median_interval(std::vector<double> numbers, double confidence = 0.95);

/// Returns the interval of the ratios of two measurements from the same rounds. Its confidence is
/// 99 %, so that it may be looked at again and again. Empty if there is no ratio.
std::optional<MedianInterval> ratio_of(const std::vector<double>& numbers,
                                       const std::vector<double>& over);

/// One manager's part in a comparison. Times are nanoseconds per event, by the comparison's clock.
struct Contestant {
  std::string manager;
  /// By round: the time of the first pass, and the median of the other passes.
  std::vector<double> first_ns{}, warm_ns{};
  /// Cost of the driver's calls in the last pass, by the simulated device's model. Set if the
  /// comparison has another clock.
  std::optional<double> simulated_ns{};
  /// By round: instructions per event over all passes. Empty if the machine does not count them.
  std::vector<double> instructions{};
  MedianInterval first{}, warm{};
  MedianInterval over_first{};  ///< `warm` over that of the first manager, round by round.
  log::Summary judged{};        ///< One pass with all checks.
  int exit_code = 0;            ///< The exit code of a replay: 0, 1 or 3.
};

/// Why a manager reserved less than a bound.
enum class Below : std::uint8_t {
  not_served,   ///< Some operations of the trace were not served.
  not_counted,  ///< Less than was live: the device does not count some of its memory.
  hazard,       ///< It gave memory to another stream while its last user was not done.
  waits,        ///< Less than the no-wait need: it waits, or makes streams wait.
};
/// Returns why a manager reserved less than `bound`. Empty if it did not.
std::optional<Below> below_bound(const log::Summary& judged, std::uint64_t reserved,
                                 std::uint64_t bound, std::uint64_t peak_live);

/// A foreign manager whose process ended too early.
struct CutOff {
  std::string manager;
  std::string words;  ///< How its process ended, as a sentence.
  int exit_code = 0;  ///< The exit code of a replay.
};

struct Comparison {
  std::string device, clock;
  std::uint64_t rounds = 0, passes = 0;
  /// The replay's own time per event, with a manager that does nothing. Empty on a simulated clock.
  std::optional<MedianInterval> engine;
  /// The needs of each device that is asked for memory: of any manager, and of one that never
  /// waits.
  std::vector<inspect::MemoryNeed> needs;
  std::vector<Contestant> contestants;
  std::vector<std::string> notes;  ///< About the device, for a person.
  /// Managers whose process ended before they answered. They are not contestants.
  std::vector<CutOff> cut_off;
  double threshold = 0;      ///< From CompareOptions.
  bool unmeasured = false;   ///< A manager was cut off while it was timed, so there are no times.
  bool interrupted = false;  ///< Not all was measured: the contestants must not be shown.
};

struct CompareOptions {
  std::string device = "auto";
  bool host_clock = false;  ///< Measure even if the device has a clock of its own.
  /// Empty: 1 on a simulated clock, else as many as `threshold` needs and `time_ns` allows.
  std::optional<std::uint64_t> rounds{};
  /// Per round, after the first. Empty: 5, or more for a short trace on a clock that measures.
  std::optional<std::uint64_t> passes{};
  /// Two times are the same if their ratio is within 1 plus this. Rounds go on until each ratio is
  /// conclusive and its interval reaches at most half of this from its median.
  double threshold = 0.02;
  std::uint64_t time_ns = 30'000'000'000;  ///< No round begins after this time.
  std::string peer_program{};
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
};

/// Replays `trace` with each manager on devices of its own: once with all checks, then in rounds
/// without checks, so that the times are the managers'. The managers take turns, and each round
/// begins with another one. On a simulated clock the times are those of the device's calls, the
/// same in every round. On a clock that measures, each turn is a process of its own. On a simulated
/// device the turns of a round then share a processor, and the time is processor time. Errors are
/// those of a run that leaves nothing to report.
Result<Comparison> compare(const trace::Trace& trace, const std::vector<ManagerFactory>& managers,
                           const CompareOptions& options);

}  // namespace emm::trial
