#include "bounds/validate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "bounds/greedy.hpp"
#include "random_buffers.hpp"

namespace emm::bounds {
namespace {

constexpr std::array<Buffer, 3> kBuffers{{{.lower = 0, .upper = 4, .size = 100},
                                          {.lower = 2, .upper = 6, .size = 30, .alignment = 20},
                                          {.lower = 4, .upper = 9, .size = 90}}};

std::string words_of(const std::vector<std::uint64_t>& offsets, std::uint64_t capacity) {
  const auto violation =
      first_violation(kBuffers, {.offsets = offsets, .height = capacity}, capacity);
  return violation.value_or("");
}

TEST(FirstViolation, AcceptsBuffersThatMeetInSpaceOrInTime) {
  EXPECT_EQ(words_of({0, 100, 10}, 130), "");
}

TEST(FirstViolation, NamesTheFirstViolation) {
  EXPECT_EQ(words_of({0, 100}, 130),
            "the layout has 2 offsets: expected one for each of 3 buffers");
  EXPECT_EQ(words_of({0, 110, 0}, 140),
            "buffer 1 lies at 110: expected a multiple of its alignment, 20");
  EXPECT_EQ(words_of({0, 100, 10}, 129),
            "buffer 1 lies at 100 with 30 bytes: expected its end within 129 bytes");
  EXPECT_EQ(words_of({0, 80, 0}, 130),
            "buffers 0 and 1 are both live at 2 and share bytes: they lie at 0 and 80");
  EXPECT_EQ(words_of({0, 100, 40}, 130),
            "buffers 1 and 2 are both live at 4 and share bytes: they lie at 100 and 40");
}

TEST(FirstViolation, IsNotFooledByEndsThatPass64Bits) {
  const auto half = std::uint64_t{1} << 63;
  const std::array<Buffer, 2> buffers{
      {{.lower = 0, .upper = 2, .size = half}, {.lower = 0, .upper = 2, .size = half}}};

  EXPECT_TRUE(first_violation(buffers, {.offsets = {0, half}, .height = kTooMany}, kTooMany));
  EXPECT_TRUE(first_violation(buffers, {.offsets = {0, half + 1}, .height = kTooMany}, kTooMany));
  EXPECT_TRUE(first_violation(buffers, {.offsets = {0, 0}, .height = kTooMany}, kTooMany));
}

TEST(FirstViolation, LetsWhatNeedsNoMemoryLieAnywhere) {
  const std::array<Buffer, 3> buffers{{{.lower = 0, .upper = 2, .size = 8},
                                       {.lower = 1, .upper = 1, .size = 8},
                                       {.lower = 0, .upper = 2, .size = 0, .alignment = 16}}};

  EXPECT_FALSE(first_violation(buffers, {.offsets = {0, 3, 5}, .height = 8}, 8));
}

// Moves one buffer of a good layout onto one that is live with it.
TEST(FirstViolation, CatchesABufferMovedOntoAnother) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(random, {.count = 40, .time_max = 20, .size_max = 1000});
    auto layout = place_greedily(buffers)->layout;
    ASSERT_FALSE(first_violation(buffers, layout, layout.height));
    const auto moved = random.below(buffers.size());
    auto onto = (moved + 1) % buffers.size();
    while (onto != moved && (buffers[onto].lower >= buffers[moved].upper ||
                             buffers[moved].lower >= buffers[onto].upper)) {
      onto = (onto + 1) % buffers.size();
    }
    if (onto == moved) continue;

    layout.offsets[moved] = layout.offsets[onto] + random.below(buffers[onto].size);

    EXPECT_TRUE(first_violation(buffers, layout, layout.height + 1000));
  }
}

}  // namespace
}  // namespace emm::bounds
