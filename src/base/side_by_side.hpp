#pragma once

#include <cstddef>
#include <functional>

namespace emm {

/// Runs `job` of 0 to `count` - 1, begun in order, on several threads, of which the caller's is
/// one; 0 threads: as many as there are processors. `job` must not throw. Returns when all are
/// done.
void side_by_side(std::size_t threads, std::size_t count,
                  const std::function<void(std::size_t)>& job);

}  // namespace emm
