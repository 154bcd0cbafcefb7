#pragma once

#include <cstdint>
#include <span>

#include "limit/buffer.hpp"

namespace emm::limit {

/// Lower bounds on the bytes that any manager needs, each the peak of a sum over the live buffers.
/// If one buffer ends when another begins, the first makes room for the second. Sums saturate at
/// kTooMany. Each takes O(n log n); any thread.

/// The peak of what is asked for.
std::uint64_t requested_bound(std::span<const Buffer> buffers);

/// The peak where a manager rounds every size up to a multiple of `alignment` (512 for PyTorch's
/// blocks), and to the buffer's own alignment where that is greater.
std::uint64_t aligned_bound(std::span<const Buffer> buffers, std::uint64_t alignment);

/// requested_bound() in whole pages: what a manager holds from a device that hands out `page` bytes
/// at a time (2 MiB on current GPUs).
std::uint64_t paged_bound(std::span<const Buffer> buffers,
                          std::uint64_t page = std::uint64_t{2} << 20);

}  // namespace emm::limit
