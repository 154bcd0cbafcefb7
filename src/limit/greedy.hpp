#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "limit/buffer.hpp"

namespace emm::limit {

struct GreedyLimits {
  /// The budget: how many steps to spend, in steps of about a nanosecond. They are counted, not
  /// timed, so the answer is the same everywhere. 0 takes a budget that grows with the number of
  /// buffers: well under a second for 20,000, under ten for 60,000 and for more.
  std::uint64_t work = 0;
};

struct Greedy {
  Layout layout;
  std::string_view order;  ///< What the buffers of the best layout were sorted by; a literal.
};

/// Places one buffer after the other, and never moves one, in several orders: by time, size, area,
/// lifetime and contention, into the lowest or the tightest gap. Then it improves the best order: a
/// buffer that reaches the top of the layout is placed earlier. Returns the lowest layout.
///
/// The order by time takes n log n and is always tried; the others end with the budget, or where a
/// layout reaches the lower bound. The layout has passed first_violation(). Nothing where every
/// layout would end beyond 64 bits. Any thread may call.
std::optional<Greedy> place_greedily(std::span<const Buffer> buffers,
                                     const GreedyLimits& limits = {});

}  // namespace emm::limit
