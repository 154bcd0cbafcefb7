#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bounds/instance.hpp"

namespace emm::bounds {

/// Places the items in the order of time; of items that begin together, the larger first. Each goes
/// into the tightest gap between the live items, or else above them all. Returns nothing if an end
/// passes 64 bits. O(n log n), however many items are live at once.
std::optional<std::vector<std::uint64_t>> place_in_time(const Instance& instance);

}  // namespace emm::bounds
