#include "replay/histogram.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.hpp"

namespace emm::replay {
namespace {

TEST(Histogram, IsExactForSmallValuesAndForTheMaximum) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100; ++value) histogram.add(value);
  histogram.add(1'234'567'891);

  EXPECT_EQ(histogram.at(50, 101), 50u);
  EXPECT_EQ(histogram.percentiles().count, 101u);
  EXPECT_EQ(histogram.percentiles().max, 1'234'567'891u);
}

TEST(Histogram, IsWithinASixtyFourthOfThePercentilesOfWhatWasAdded) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    Histogram histogram;
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 10'000; ++i) {
      values.push_back(random.log_uniform(1, std::uint64_t{1} << 60));
      histogram.add(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const std::uint64_t part : {1u, 500u, 900u, 990u, 999u, 1000u}) {
      const auto exact = values[values.size() * part / 1000 - 1];
      const auto answer = histogram.at(part, 1000);
      EXPECT_GE(answer, exact);
      EXPECT_LE(answer - exact, exact / 64);
    }
  }
}

TEST(Histogram, TakesTheGreatestValue) {
  Histogram histogram;
  histogram.add(~std::uint64_t{0});
  histogram.add(0);

  EXPECT_EQ(histogram.at(1, 1), ~std::uint64_t{0});
  EXPECT_EQ(histogram.at(1, 2), 0u);
}

}  // namespace
}  // namespace emm::replay
