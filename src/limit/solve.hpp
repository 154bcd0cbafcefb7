#pragma once

#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "limit/buffer.hpp"

namespace emm::limit {

/// When to stop looking. What is found depends on `nodes` alone; a clock that runs out can only
/// turn an answer into gave_up.
struct SolveLimits {
  std::uint64_t nodes =
      20'000'000;  ///< States of the search, over all its attempts; some microseconds each.
  const Clock* clock = nullptr;  ///< Without one, time does not count.
  std::uint64_t time_ns = 0;     ///< From the call, by `clock`.
};

struct Solution {
  enum class Outcome : std::uint8_t {
    placed,  ///< `layout` holds all buffers within the capacity; it has passed first_violation().
    infeasible,  ///< Proven: no layout does.
    gave_up,     ///< Neither was found within the limits.
  };
  Outcome outcome = Outcome::gave_up;
  Layout layout;  ///< Empty unless placed.
  std::uint64_t nodes =
      0;  ///< That the search looked at; 0 where a bound or a greedy layout was the answer.
};

/// Do the buffers fit into `capacity` bytes? By the bound, then greedily, then by a search of each
/// stretch of time that no buffer connects to another, tried over and over with other orders and
/// growing limits. The outcome does not depend on the order of the buffers, nor on the direction of
/// time. Any thread.
Solution solve(std::span<const Buffer> buffers, std::uint64_t capacity,
               const SolveLimits& limits = {});

/// What the least capacity is known to be.
struct Bracket {
  std::uint64_t lower =
      0;  ///< No layout is lower; kTooMany also where 64 bits do not hold the bound.
  std::uint64_t upper = kTooMany;  ///< The height of `layout`.
  Layout layout;  ///< Has passed first_violation(). Empty where none ends within 64 bits.
  std::uint64_t greedy_height = kTooMany;  ///< What the best greedy layout has, before any search.
  std::uint64_t nodes = 0;
};

/// The bracket around the least capacity: between the requested bound, raised by proofs, and the
/// best layout found. Searches only while upper exceeds lower by more than `gap` of lower (0.01 is
/// one percent; 0 asks for the exact answer), and within the limits.
Bracket minimal_capacity(std::span<const Buffer> buffers, double gap,
                         const SolveLimits& limits = {});

}  // namespace emm::limit
