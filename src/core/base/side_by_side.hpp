#pragma once

#include <cstddef>
#include <functional>

namespace emm {

/// Calls job(0) to job(count - 1), begun in this order, on `threads` threads including the
/// caller's; 0 means one for each processor. `job` must not throw. Returns when all calls have
/// returned.
void side_by_side(std::size_t threads, std::size_t count,
                  const std::function<void(std::size_t)>& job);

}  // namespace emm
