#pragma once

#include <cstddef>
#include <functional>

namespace emm::conformance {

class Bench;

/// Runs `body(0)` to `body(count - 1)` on threads of their own, and waits for all. On a simulated
/// device a signal (SIGUSR2) stops one after the other for a moment, wherever it is: in the middle
/// of a manager's code, most likely. That makes races wide enough to be seen. One call at a time.
void run_interrupted(const Bench& bench, std::size_t count,
                     const std::function<void(std::size_t)>& body);

}  // namespace emm::conformance
