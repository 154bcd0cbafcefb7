#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace emm::replay {

/// The processors that a process may use. Threads that are woken together may be put on one
/// processor while another is idle, and all that wait for one of them are then half as fast, for
/// some hundredths of a second: so each is moved to one of its own when it begins, and is free to
/// go from there. Does nothing where a system does not tell.
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
  /// Which of them this thread is on.
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
