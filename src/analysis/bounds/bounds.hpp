#pragma once

#include <cstdint>
#include <span>

#include "bounds/buffer.hpp"

namespace emm::bounds {

/// Lower bounds on the bytes that any manager needs, each the peak of a sum over the live buffers.
/// If one buffer ends when another begins, the first makes room for the second. Sums saturate at
/// kTooMany. Each function takes O(n log n). Any thread.

/// The peak of the requested bytes.
std::uint64_t requested_bound(std::span<const Buffer> buffers);

/// The peak when a manager rounds every size up to a multiple of `alignment` (512 for PyTorch's
/// blocks), or of the buffer's own alignment if that is greater.
std::uint64_t aligned_bound(std::span<const Buffer> buffers, std::uint64_t alignment);

/// requested_bound() rounded up to whole pages: what a manager holds from a device that hands out
/// `page` bytes at a time (2 MiB on current GPUs).
std::uint64_t paged_bound(std::span<const Buffer> buffers,
                          std::uint64_t page = std::uint64_t{2} << 20);

}  // namespace emm::bounds
