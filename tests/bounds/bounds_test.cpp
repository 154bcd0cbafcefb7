#include "bounds/bounds.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "random_buffers.hpp"

namespace emm::bounds {
namespace {

TEST(Bounds, AreThePeakOfWhatIsLive) {
  const std::array<Buffer, 3> buffers{{{.lower = 0, .upper = 4, .size = 100},
                                       {.lower = 2, .upper = 6, .size = 30},
                                       {.lower = 5, .upper = 9, .size = 90}}};

  EXPECT_EQ(requested_bound(buffers), 130u);
}

TEST(Bounds, LetAnEndMakeRoomForABeginAtTheSameTime) {
  const std::array<Buffer, 2> buffers{
      {{.lower = 0, .upper = 5, .size = 7}, {.lower = 5, .upper = 6, .size = 8}}};

  EXPECT_EQ(requested_bound(buffers), 8u);
}

TEST(Bounds, AreZeroWhereNothingNeedsMemory) {
  const std::array<Buffer, 3> buffers{{{.lower = 3, .upper = 3, .size = 9},
                                       {.lower = 4, .upper = 2, .size = 9},
                                       {.lower = 0, .upper = 9, .size = 0}}};

  EXPECT_EQ(requested_bound({}), 0u);
  EXPECT_EQ(requested_bound(buffers), 0u);
  EXPECT_EQ(paged_bound(buffers), 0u);
}

TEST(Bounds, RoundEachSizeUpToTheAlignmentAndThePeakToPages) {
  const std::array<Buffer, 2> buffers{{{.lower = 0, .upper = 2, .size = 1},
                                       {.lower = 0, .upper = 2, .size = 513, .alignment = 4096}}};

  EXPECT_EQ(aligned_bound(buffers, 512), 512u + 4096u);
  EXPECT_EQ(paged_bound(buffers), std::uint64_t{2} << 20);
  EXPECT_EQ(paged_bound(buffers, 512), 1024u);
}

TEST(Bounds, SaturateWhereSumsPass64Bits) {
  const std::vector<Buffer> buffers(5, {.lower = 0, .upper = 2, .size = std::uint64_t{1} << 63});

  EXPECT_EQ(requested_bound(buffers), kTooMany);
  EXPECT_EQ(aligned_bound(buffers, 512), kTooMany);
  EXPECT_EQ(paged_bound(buffers), kTooMany);
}

TEST(Bounds, DoNotDependOnTheOrderOfRowsNorOnTheDirectionOfTime) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(random, {.count = 200, .time_max = 90, .size_max = 5000});

    const auto bound = requested_bound(buffers);

    EXPECT_EQ(requested_bound(shuffled(buffers, random)), bound);
    EXPECT_EQ(requested_bound(reversed_in_time(buffers)), bound);
  }
}

}  // namespace
}  // namespace emm::bounds
