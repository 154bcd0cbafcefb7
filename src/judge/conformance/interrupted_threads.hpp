#pragma once

#include <cstddef>
#include <functional>

namespace emm::conformance {

class Bench;

/// While one lives, this thread is in the judged manager, and run_interrupted() may pause it.
class InManager {
 public:
  InManager() noexcept;
  ~InManager();
  InManager(const InManager&) = delete;
  InManager& operator=(const InManager&) = delete;
};

/// Runs `body(0)` to `body(count - 1)` on threads of their own and waits for all of them. On a
/// simulated device, a signal (SIGUSR2) pauses one thread after another while it is in the manager
/// but not in the driver. This widens races until they show. Only one such call may run at a time.
void run_interrupted(const Bench& bench, std::size_t count,
                     const std::function<void(std::size_t)>& body);

}  // namespace emm::conformance
