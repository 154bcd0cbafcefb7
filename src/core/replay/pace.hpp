#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.hpp"
#include "replay/histogram.hpp"

namespace emm::replay {

/// Keeps the recorded times, or a multiple of them: no event begins sooner after the first one than
/// in the recording. Advances a simulated clock instead of waiting. Any thread may wait.
class Pace {
 public:
  /// `speed` 2 is twice as fast as recorded. A wait ends early when `interrupted` is set; it may be
  /// null.
  Pace(Clock& clock, double speed, const std::atomic<bool>* interrupted) noexcept;

  /// Starts the clock: now is the trace's time `first_ns`.
  void begin(std::uint64_t first_ns) noexcept;
  /// Waits for the time of an event that was recorded at `time_ns`. Returns the nanoseconds waited,
  /// and adds the event's delay to `lateness`.
  std::uint64_t wait(std::uint64_t time_ns, Histogram& lateness);

 private:
  void sleep_until(std::uint64_t due_ns) const noexcept;

  Clock& clock_;
  ManualClock* simulated_;
  std::mutex moving_;
  double speed_;
  const std::atomic<bool>* interrupted_;
  std::uint64_t first_ns_ = 0;
  std::uint64_t begin_ns_ = 0;
};

}  // namespace emm::replay
