#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace emm::fleet {

inline constexpr std::uint32_t kUnmatched = std::numeric_limits<std::uint32_t>::max();

/// Two series of keys beside each other.
struct Alignment {
  std::vector<std::uint32_t> of_a, of_b;  ///< The place in the other, or kUnmatched.
  std::uint64_t matched = 0;
};

/// Matches equal keys in order, with the fewest left out where these are some thousand at most; of
/// series that differ more, both go on after a difference where the next few keys are the same.
/// What is left over is matched with its like nearby, as threads ask in another order in each run.
Alignment align(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

}  // namespace emm::fleet
