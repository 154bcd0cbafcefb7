#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace emm::replay {

/// The processors that a process may use. The system may put threads that are woken together on one
/// processor while another is idle; all that wait for one of them are then half as fast for some
/// hundredths of a second. So each thread is moved to a processor of its own when it begins, and
/// may be moved on from there. Does nothing where the system does not list its processors.
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
  /// The index of the processor that runs this thread.
  std::size_t current() const noexcept {
    const auto number = sched_getcpu();
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      if (numbers_[i] == number) return i;
    }
    return 0;
  }
  /// Moves this thread. REQUIRES: which < count().
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
