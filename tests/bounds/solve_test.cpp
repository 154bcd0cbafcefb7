#include "bounds/solve.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "bounds/bounds.hpp"
#include "bounds/validate.hpp"
#include "random_buffers.hpp"

namespace emm::bounds {
namespace {

using Outcome = Solution::Outcome;

class ExhaustedClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return 5; }
  std::string_view kind() const noexcept override { return "simulated"; }
};

TEST(Solve, FindsTheExactMinimumOfSmallInstances) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const BufferShape shape{.count = random.between(1, 7),
                            .time_max = random.between(3, 12),
                            .size_max = random.between(2, 40),
                            .aligned = seed % 3 == 0};
    const auto buffers = random_buffers(random, shape);
    const auto least = least_height_of_all_orders(buffers);

    const auto at_least = solve(buffers, least);
    const auto below = solve(buffers, least - 1);
    const auto bracket = minimal_capacity(buffers, 0.0);

    ASSERT_EQ(at_least.outcome, Outcome::placed);
    EXPECT_FALSE(first_violation(buffers, at_least.layout, least));
    EXPECT_EQ(below.outcome, Outcome::infeasible);
    EXPECT_EQ(bracket.lower, least);
    EXPECT_EQ(bracket.upper, least);
    EXPECT_FALSE(first_violation(buffers, bracket.layout, least));
  }
}

TEST(Solve, AnswersAlikeAfterPermutingRowsAndReversingTime) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(random, {.count = 40, .time_max = 30, .size_max = 20});
    const auto capacity = requested_bound(buffers) + seed % 3;
    const SolveLimits limits{.nodes = 3'000};

    const auto plain = solve(buffers, capacity, limits);
    const auto permuted = solve(shuffled(buffers, random), capacity, limits);
    const auto reversed = solve(reversed_in_time(buffers), capacity, limits);

    EXPECT_EQ(permuted.outcome, plain.outcome);
    EXPECT_EQ(permuted.nodes, plain.nodes);
    EXPECT_EQ(reversed.outcome, plain.outcome);
    EXPECT_EQ(reversed.nodes, plain.nodes);
  }
}

TEST(Solve, PlacesDegenerateBuffers) {
  const std::array<Buffer, 4> buffers{{{.lower = 1, .upper = 9, .size = 0},
                                       {.lower = 4, .upper = 4, .size = 70},
                                       {.lower = 6, .upper = 3, .size = 70},
                                       {.lower = 0, .upper = 1, .size = 5, .alignment = 0}}};

  EXPECT_EQ(solve({}, 0).outcome, Outcome::placed);
  EXPECT_EQ(solve(buffers, 5).outcome, Outcome::placed);
  EXPECT_EQ(solve(buffers, 4).outcome, Outcome::infeasible);
  EXPECT_EQ(minimal_capacity(buffers, 0.0).upper, 5u);
  EXPECT_EQ(minimal_capacity({}, 0.0).upper, 0u);
}

TEST(Solve, StacksIdenticalIntervals) {
  const std::vector<Buffer> buffers(60, {.lower = 3, .upper = 8, .size = 11, .alignment = 4});

  const auto bracket = minimal_capacity(buffers, 0.0, {.nodes = 20'000});

  EXPECT_EQ(bracket.upper, 59u * 12u + 11u);
  EXPECT_EQ(solve(buffers, 60u * 11u - 1).outcome, Outcome::infeasible);
}

TEST(Solve, CountsSizesNear2To63WithoutOverflow) {
  const auto half = std::uint64_t{1} << 63;
  const std::vector<Buffer> two(2, {.lower = 0, .upper = 2, .size = half});
  const std::array<Buffer, 3> near{{{.lower = 0, .upper = 2, .size = half},
                                    {.lower = 1, .upper = 3, .size = half - 1},
                                    {.lower = 2, .upper = 3, .size = half}}};

  EXPECT_EQ(solve(two, kTooMany).outcome, Outcome::infeasible);
  EXPECT_TRUE(minimal_capacity(two, 0.0).layout.offsets.empty());
  EXPECT_EQ(solve(near, kTooMany).outcome, Outcome::placed);
  EXPECT_EQ(solve(near, kTooMany - 1).outcome, Outcome::infeasible);
}

TEST(Solve, GivesUpAtItsLimits) {
  Prng random(3);
  const auto buffers = random_buffers(random, {.count = 60, .time_max = 25, .size_max = 1000});
  const auto bound = requested_bound(buffers);
  const ExhaustedClock clock;

  const auto without_nodes = solve(buffers, bound, {.nodes = 0});
  const auto without_time =
      solve(buffers, bound, {.nodes = 1'000'000, .clock = &clock, .time_ns = 0});

  EXPECT_EQ(without_nodes.outcome, Outcome::gave_up);
  EXPECT_EQ(without_time.outcome, Outcome::gave_up);
  EXPECT_TRUE(without_time.layout.offsets.empty());
}

TEST(MinimalCapacity, AsksNoMoreOfTheSearchThanTheGap) {
  Prng random(3);
  const auto buffers = random_buffers(random, {.count = 60, .time_max = 25, .size_max = 1000});

  const auto wide = minimal_capacity(buffers, 1.0);
  const auto narrow = minimal_capacity(buffers, 0.0, {.nodes = 20'000});

  EXPECT_EQ(wide.nodes, 0u);
  EXPECT_EQ(wide.upper, wide.greedy_height);
  EXPECT_GT(narrow.nodes, 0u);
  EXPECT_LE(narrow.upper, wide.upper);
  EXPECT_LE(narrow.lower, narrow.upper);
}

}  // namespace
}  // namespace emm::bounds
