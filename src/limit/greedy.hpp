#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "limit/buffer.hpp"

namespace emm::limit {

struct GreedyLimits {
  /// Stop trying for less once about this many nanoseconds' worth of steps are spent. They are
  /// counted, not timed, so the answer is the same everywhere. 0 takes a budget that
  /// grows with the buffers: well under a second for 20,000, under ten for 60,000 and for more.
  std::uint64_t work = 0;
};

struct Greedy {
  Layout layout;
  std::string_view order;  ///< What the buffers of the best layout were sorted by; a literal.
};

/// The lowest of several layouts that place one buffer after the other and never move one. The
/// orders are by time, size, area, lifetime and contention, into the lowest or the tightest gap;
/// then the best order is mended: what would not fit lower than the best is placed earlier. That by
/// time takes n log n and is always tried; the others stop where the budget does. Ends early at the
/// requested bound. The layout has passed first_violation(). Nothing where no layout
/// was found that ends within 64 bits. Any thread.
std::optional<Greedy> place_greedily(std::span<const Buffer> buffers,
                                     const GreedyLimits& limits = {});

}  // namespace emm::limit
