#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace emm::replay {

/// The processors that this process may use. The system may put threads that wake together on one
/// processor while another is idle. All threads that wait for one of these are then half as fast
/// for some hundredths of a second. So each thread is moved to a different processor when it
/// begins, and the system may move it from there. Does nothing if the system does not list its
/// processors.
class Processors {
 public:
  Processors() noexcept {
    CPU_ZERO(&all_);
    if (sched_getaffinity(0, sizeof all_, &all_) != 0) return;
    for (int number = 0; number < CPU_SETSIZE; ++number) {
      if (CPU_ISSET(number, &all_)) numbers_.push_back(number);
    }
  }

  std::size_t count() const noexcept { return numbers_.size(); }
  /// The index of the processor that runs the calling thread.
  std::size_t current() const noexcept {
    const auto number = sched_getcpu();
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      if (numbers_[i] == number) return i;
    }
    return 0;
  }
  /// Moves the calling thread, then lets the system move it again. REQUIRES: which < count().
  void move_to(std::size_t which) const noexcept {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(numbers_[which], &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return;
    sched_setaffinity(0, sizeof all_, &all_);
  }

 private:
  cpu_set_t all_;
  std::vector<int> numbers_;
};

}  // namespace emm::replay
