#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "limit/instance.hpp"

namespace emm::limit {

/// Places the items as time goes on, the greater first of those that begin
/// together, each in the tightest gap between what is live then, or else above all. Nothing where
/// an end passes 64 bits. O(n log n), however many are live at once.
std::optional<std::vector<std::uint64_t>> place_in_time(const Instance& instance);

}  // namespace emm::limit
