#pragma once

#include <cstddef>
#include <functional>

namespace emm::conformance {

class Bench;

/// While one lives, this thread is in the manager that is judged: run_interrupted() may stop it.
class InManager {
 public:
  InManager() noexcept;
  ~InManager();
  InManager(const InManager&) = delete;
  InManager& operator=(const InManager&) = delete;
};

/// Runs `body(0)` to `body(count - 1)` on threads of their own, and waits for all. On a simulated
/// device a signal (SIGUSR2) stops one after the other for a moment where it is in the manager, and
/// not in the driver: that makes races wide enough to be seen. One call at a time.
void run_interrupted(const Bench& bench, std::size_t count,
                     const std::function<void(std::size_t)>& body);

}  // namespace emm::conformance
