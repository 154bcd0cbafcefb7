#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bounds/buffer.hpp"

namespace emm::bounds {

/// Checks a layout by a sweep over time that shares no code with the solvers. A sound layout has
/// one offset for each buffer, every offset is a multiple of the buffer's alignment, every end is
/// within `capacity`, and no two buffers that are live together share a byte. Returns nothing if
/// the layout is sound, else the first violation in words, with the buffers' positions from 0:
/// misplaced buffers in their order, then overlaps in the order of time. O(n log n). Any thread.
std::optional<std::string> first_violation(std::span<const Buffer> buffers, const Layout& layout,
                                           std::uint64_t capacity);

}  // namespace emm::bounds
