#include "limit/greedy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "limit/bounds.hpp"
#include "limit/validate.hpp"
#include "random_buffers.hpp"

namespace emm::limit {
namespace {

TEST(Greedy, LaysDisjointLifetimesOnTheSameBytes) {
  const std::array<Buffer, 2> buffers{
      {{.lower = 0, .upper = 5, .size = 7}, {.lower = 5, .upper = 6, .size = 8}}};

  const auto greedy = place_greedily(buffers);

  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->layout.height, 8u);
}

TEST(Greedy, NeedsNothingForNothing) {
  const std::array<Buffer, 2> buffers{
      {{.lower = 5, .upper = 5, .size = 7}, {.lower = 0, .upper = 6, .size = 0}}};

  EXPECT_EQ(place_greedily({})->layout.height, 0u);
  EXPECT_EQ(place_greedily(buffers)->layout.height, 0u);
}

TEST(Greedy, FindsNoLayoutThatEndsBeyond64Bits) {
  const auto half = std::uint64_t{1} << 63;
  const std::vector<Buffer> two(2, {.lower = 0, .upper = 2, .size = half});
  const std::vector<Buffer> fitting{{.lower = 0, .upper = 2, .size = half},
                                    {.lower = 0, .upper = 2, .size = half - 1}};

  EXPECT_FALSE(place_greedily(two));
  ASSERT_TRUE(place_greedily(fitting));
  EXPECT_EQ(place_greedily(fitting)->layout.height, kTooMany);
}

TEST(Greedy, StaysBetweenTheBoundAndTheSumOfSizesWhateverTheAlignment) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(
        random, {.count = 150, .time_max = 400, .size_max = 9000, .aligned = seed % 2 == 0});

    const auto greedy = place_greedily(buffers, {.work = 400'000});

    ASSERT_TRUE(greedy);
    EXPECT_GE(greedy->layout.height, requested_bound(buffers));
    EXPECT_LE(greedy->layout.height, 150u * 9008u);
    EXPECT_FALSE(first_violation(buffers, greedy->layout, greedy->layout.height));
  }
}

TEST(Greedy, IsAsLowAfterPermutingRowsAndReversingTime) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(random, {.count = 120, .time_max = 60, .size_max = 700});

    const auto height = place_greedily(buffers, {.work = 400'000})->layout.height;

    EXPECT_EQ(place_greedily(shuffled(buffers, random), {.work = 400'000})->layout.height, height);
    EXPECT_EQ(place_greedily(reversed_in_time(buffers), {.work = 400'000})->layout.height, height);
  }
}

}  // namespace
}  // namespace emm::limit
