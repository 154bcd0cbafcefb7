#pragma once

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "limit/buffer.hpp"

namespace emm::limit {

/// Judges a layout by a sweep over time that shares nothing with what made it: one offset a buffer,
/// each a multiple of the buffer's alignment, each end within `capacity`, and no two buffers that
/// are live together on the same byte. The error names the first violation, by the buffers'
/// positions from 0: misplaced buffers in their order, then overlaps in the order of time. O(n log
/// n). Any thread.
Status validate(std::span<const Buffer> buffers, const Layout& layout, std::uint64_t capacity);

}  // namespace emm::limit
