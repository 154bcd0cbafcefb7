#include "replay/pace.hpp"

#include <algorithm>
#include <ctime>

namespace emm::replay {
namespace {

constexpr std::uint64_t kSpin =
    60'000;  ///< Nanoseconds that a sleep may last too long; so the end of a wait spins.
constexpr std::uint64_t kSleepMax =
    20'000'000;  ///< Nanoseconds between two reads of `interrupted`.

}  // namespace

Pace::Pace(Clock& clock, double speed, const std::atomic<bool>* interrupted) noexcept
    : clock_(clock),
      simulated_(dynamic_cast<ManualClock*>(&clock)),
      speed_(speed),
      interrupted_(interrupted) {}

void Pace::begin(std::uint64_t first_ns) noexcept {
  first_ns_ = first_ns;
  begin_ns_ = clock_.now_ns();
}

std::uint64_t Pace::wait(std::uint64_t time_ns, Histogram& lateness) {
  const auto since = time_ns > first_ns_ ? time_ns - first_ns_ : 0;
  const auto due = begin_ns_ + static_cast<std::uint64_t>(static_cast<double>(since) / speed_);
  const auto before = clock_.now_ns();
  if (simulated_ != nullptr) {
    const std::lock_guard lock(moving_);
    const auto now = clock_.now_ns();
    if (now < due) simulated_->advance(due - now);
  } else {
    sleep_until(due);
  }
  const auto after = clock_.now_ns();
  lateness.add(before > due ? before - due : after > due ? after - due : 0);
  return before < due ? after - before : 0;
}

void Pace::sleep_until(std::uint64_t due_ns) const noexcept {
  for (;;) {
    const auto now = clock_.now_ns();
    if (now >= due_ns) return;
    if (interrupted_ != nullptr && interrupted_->load(std::memory_order_relaxed)) return;
    const auto left = due_ns - now;
    if (left <= kSpin) continue;
    const auto sleep = std::min(left - kSpin, kSleepMax);
    const timespec pause{.tv_sec = 0, .tv_nsec = static_cast<long>(sleep)};
    nanosleep(&pause, nullptr);  // a signal ends it, and the loop looks again
  }
}

}  // namespace emm::replay
