#pragma once

#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "bounds/buffer.hpp"

namespace emm::bounds {

/// When to stop searching. The answer depends on `nodes` alone; a clock that runs out can only turn
/// an answer into gave_up.
struct SolveLimits {
  std::uint64_t nodes =
      20'000'000;  ///< States over all attempts of the search. A state takes some microseconds.
  const Clock* clock = nullptr;  ///< Null: time is not limited.
  std::uint64_t time_ns = 0;     ///< Counted from the call, by `clock`.
};

struct Solution {
  enum class Outcome : std::uint8_t {
    placed,  ///< `layout` holds all buffers within the capacity and has passed first_violation().
    infeasible,  ///< Proven: no layout fits the capacity.
    gave_up,     ///< The limits ended the search before an answer.
  };
  Outcome outcome = Outcome::gave_up;
  Layout layout;  ///< Empty unless placed.
  std::uint64_t nodes =
      0;  ///< States that the search looked at. 0 if a bound or a greedy layout was the answer.
};

/// Do the buffers fit into `capacity` bytes? Tries the lower bound, then greedy layouts, then a
/// search. The search treats each stretch of time that no buffer connects to another by itself, and
/// repeats with other orders and growing limits. The outcome depends neither on the order of the
/// buffers nor on the direction of time. Any thread.
Solution solve(std::span<const Buffer> buffers, std::uint64_t capacity,
               const SolveLimits& limits = {});

/// The known bounds of the least capacity.
struct Bracket {
  std::uint64_t lower = 0;  ///< No layout is lower. kTooMany if 64 bits cannot hold the bound.
  std::uint64_t upper = kTooMany;  ///< The height of `layout`.
  Layout layout;  ///< Has passed first_violation(). Empty if no layout ends within 64 bits.
  std::uint64_t greedy_height = kTooMany;  ///< Height of the best greedy layout, before any search.
  std::uint64_t nodes = 0;
};

/// Brackets the least capacity between the requested bound, raised by proofs, and the best layout
/// found. Searches only while upper exceeds lower by more than `gap` of lower (0.01 is one percent;
/// 0 asks for the exact answer), and within the limits.
Bracket minimal_capacity(std::span<const Buffer> buffers, double gap,
                         const SolveLimits& limits = {});

}  // namespace emm::bounds
