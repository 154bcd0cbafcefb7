#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bounds/buffer.hpp"

namespace emm::bounds {

struct GreedyLimits {
  /// The budget, in steps of about a nanosecond. Steps are counted and not timed, so the answer is
  /// the same everywhere. 0 selects a budget that grows with the number of buffers: well under a
  /// second for 20,000, and under ten seconds for 60,000 or more.
  std::uint64_t work = 0;
};

struct Greedy {
  Layout layout;
  std::string_view order;  ///< What the buffers of the best layout were sorted by. A literal.
};

/// Places one buffer after another and never moves one, in several orders: by time, size, area,
/// lifetime and contention, into the lowest or the tightest gap. Then it improves the best order by
/// placing a buffer that reaches the top of the layout earlier. Returns the lowest layout.
///
/// The order by time takes O(n log n) and is always tried. The other orders are tried until the
/// budget is spent or a layout reaches the lower bound. The layout has passed first_violation().
/// Returns nothing if every layout would end beyond 64 bits. Any thread may call.
std::optional<Greedy> place_greedily(std::span<const Buffer> buffers,
                                     const GreedyLimits& limits = {});

}  // namespace emm::bounds
