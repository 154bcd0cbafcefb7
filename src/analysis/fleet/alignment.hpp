#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace emm::fleet {

// No place in the other series.
inline constexpr std::uint32_t kUnmatched = std::numeric_limits<std::uint32_t>::max();

/// Two series of keys that are matched with each other.
struct Alignment {
  std::vector<std::uint32_t> of_a, of_b;  ///< The place in the other series, or kUnmatched.
  std::uint64_t matched = 0;
};

/// Matches equal keys in order. It leaves out the fewest if these are some thousand at most. If the
/// series differ more, both continue after a difference where the next few keys agree. Then it
/// matches left-over equal keys that stand nearby, because threads make their requests in another
/// order in each run.
Alignment align(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);

}  // namespace emm::fleet
