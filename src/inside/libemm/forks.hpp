#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.hpp"

namespace emm::libemm {

/// How often this process and its ancestors had forked, from the first call on, when the process
/// began. In a child of fork() it is another number than in the parent. Costs one load.
///
/// A child has a copy of its parent's managers and none of its threads: a lock that one of them
/// held is never released there. CUDA answers no call of such a child. So what was made under
/// another number is not called at all.
inline std::atomic<std::uint32_t> forks_so_far{0};

/// Sees forks from now on.
void begin_to_see_forks() noexcept;

inline std::uint32_t forks() noexcept { return forks_so_far.load(std::memory_order_relaxed); }

/// What a manager of the parent answers in the child.
Error made_before_the_fork();

}  // namespace emm::libemm
