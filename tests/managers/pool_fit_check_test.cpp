// The rule of early reject: what can be served is never rejected.
#include <gtest/gtest.h>

#include "base/units.hpp"
#include "managers/pool/fit_check.hpp"

namespace emm::test {
namespace {

using pool::FitCheck;
using pool::Supply;

FitCheck check(std::uint64_t size, const Supply& asker, const Supply& other = {}) {
  FitCheck check{.size = size, .limit = 64_MiB};
  check.add(other, false);
  check.add(asker, true);
  return check;
}

TEST(PoolFitCheck, WhatIsHandedOutCannotServe) {
  EXPECT_FALSE(
      check(16_MiB, {.allocated = 40_MiB, .whole = 24_MiB}, {.allocated = 8_MiB}).fails(0));
  EXPECT_TRUE(
      check(16_MiB + 1, {.allocated = 40_MiB, .whole = 24_MiB}, {.allocated = 8_MiB}).fails(0));
  EXPECT_TRUE(check(64_MiB + 1, {}).fails(64_MiB)) << "more than the limit";
}

TEST(PoolFitCheck, AStitchedBlockHasTheEndOfASpanWholeSpansAndTheStartOfASpan) {
  const Supply asker{.largest = 3_MiB, .whole = 4_MiB, .before = 1_MiB, .behind = 2_MiB};
  EXPECT_FALSE(check(7_MiB, asker).fails(0));
  EXPECT_TRUE(check(7_MiB + 1, asker).fails(0));
  EXPECT_FALSE(check(9_MiB, asker).fails(2_MiB)) << "with what the driver may still give";
}

TEST(PoolFitCheck, TheLargestFreeBlockServesWhereNothingCanBeStitched) {
  EXPECT_FALSE(check(3_MiB, {.largest = 3_MiB}).fails(0));
  EXPECT_TRUE(check(3_MiB + 1, {.largest = 3_MiB}).fails(0));
}

TEST(PoolFitCheck, OfOtherArenasOnlyWholeSpansServe) {
  const Supply other{.largest = 9_MiB, .whole = 4_MiB, .before = 1_MiB, .behind = 2_MiB};
  EXPECT_FALSE(check(4_MiB, {}, other).fails(0));
  EXPECT_TRUE(check(4_MiB + 1, {}, other).fails(0));
}

TEST(PoolFitCheck, WhereMemoryWaitsForEventsOnlyWhatIsHandedOutRejects) {
  EXPECT_FALSE(check(16_MiB, {}, {.has_deferred = true}).fails(0));
  EXPECT_TRUE(check(16_MiB, {}, {.allocated = 49_MiB, .has_deferred = true}).fails(0));
}

}  // namespace
}  // namespace emm::test
