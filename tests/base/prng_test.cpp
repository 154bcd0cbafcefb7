#include "base/prng.hpp"

#include <gtest/gtest.h>

namespace emm {
namespace {

TEST(Prng, IsTheSameEverywhere) {
  Prng random(1);

  EXPECT_EQ(random.next(), 0xb3f2af6d0fc710c5u);
  EXPECT_EQ(random.next(), 0x853b559647364ceau);
}

TEST(Prng, StaysInItsBounds) {
  Prng random(2);
  for (int i = 0; i < 10'000; ++i) {
    const auto value = random.log_uniform(300, 70'000);
    ASSERT_GE(value, 300u);
    ASSERT_LE(value, 70'000u);
    ASSERT_LT(random.below(7), 7u);
  }
}

}  // namespace
}  // namespace emm
