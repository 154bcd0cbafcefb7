// The pool's growth policy: numbers in, decisions out.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "managers/pool/backing.hpp"
#include "managers/pool/growth_policy.hpp"

namespace emm::test {
namespace {

using pool::Backing;
namespace growth = pool::growth;
using growth::Usage;

TEST(PoolGrowthPolicy, SlackIsA64thOfThePeakAndAFewMiB) {
  EXPECT_EQ(growth::slack({}), 4_MiB);
  EXPECT_EQ(growth::slack({.peak = 16_MiB}), 4_MiB + 256_KiB);
  EXPECT_EQ(growth::slack({.peak = 64_MiB}), 7_MiB + 1_MiB) << "a small pool has up to 7 MiB";
  EXPECT_EQ(growth::slack({.peak = 384_MiB}), 4_MiB + 6_MiB) << "a large one has 4";
  EXPECT_EQ(growth::slack({.peak = 64_GiB}), 4_MiB + 1_GiB);
}

TEST(PoolGrowthPolicy, SlackDoublesWhereStitchingDoesNotEndAndAtMost32Fold) {
  Usage usage{.peak = 64_GiB, .active_spans = 100, .spans = 100};
  const auto once = growth::slack(usage);
  usage.stitched_spans = 215;
  EXPECT_EQ(growth::slack(usage), once);
  usage.stitched_spans = 216;
  EXPECT_EQ(growth::slack(usage), 2 * once) << "each active span has been stitched twice";
  usage.stitched_in_vain = 464;
  EXPECT_EQ(growth::slack(usage), 4 * once) << "and four times in vain";
  usage.stitched_spans = 1'000'000;
  EXPECT_EQ(growth::slack(usage), 32 * once);
}

TEST(PoolGrowthPolicy, AnArenaAffordsWhatStaysWithinItsPeakAndTheSlack) {
  const Usage usage{.allocated = 90_MiB, .peak = 100_MiB, .active_bytes = 100_MiB};
  const auto slack = growth::slack(usage);
  EXPECT_TRUE(growth::affords(usage, slack, 1));
  EXPECT_FALSE(growth::affords(usage, slack + 1, 1));
  EXPECT_TRUE(growth::affords(usage, slack + 10_MiB, 20_MiB))
      << "the request itself raises the peak";
  EXPECT_FALSE(growth::affords(usage, slack + 10_MiB + 1, 20_MiB));
}

TEST(PoolGrowthPolicy, ASpanIsA128thOfWhatIsActiveWithin8And64MiB) {
  EXPECT_EQ(growth::span_size({}), 8_MiB);
  EXPECT_EQ(growth::span_size({.active_bytes = 2_GiB}), 16_MiB);
  EXPECT_EQ(growth::span_size({.active_bytes = 2_GiB + 255_MiB}), 16_MiB) << "whole pages";
  EXPECT_EQ(growth::span_size({.active_bytes = 100_GiB}), 64_MiB);
}

TEST(PoolGrowthPolicy, AnArenaThatStitchesMoreThanASpanForEightRequestsHasLargerSpans) {
  Usage usage{.requests = 80, .stitched_spans = 10};
  EXPECT_FALSE(growth::stitches_often(usage));
  usage.stitched_spans = 11;
  EXPECT_TRUE(growth::stitches_often(usage));
  EXPECT_EQ(growth::span_size(usage), 64_MiB);
  usage.sharers = 4;
  EXPECT_EQ(growth::span_size(usage), 16_MiB) << "all arenas share that";
  usage.sharers = 100;
  EXPECT_EQ(growth::span_size(usage), 8_MiB);
  usage.active_bytes = 100_GiB;
  EXPECT_EQ(growth::span_size(usage), 96_MiB);
}

TEST(PoolGrowthPolicy, ASmallPoolGrowsByASingleSpan) {
  EXPECT_EQ(growth::single_span_limit({.active_bytes = 384_MiB - 1}), 128_MiB);
  EXPECT_EQ(growth::single_span_limit({.active_bytes = 100_MiB, .sharers = 8}), 16_MiB);
  EXPECT_EQ(growth::single_span_limit({.active_bytes = 384_MiB}), 8_MiB);
  EXPECT_EQ(growth::single_span_limit({.active_bytes = 1_GiB}), 20_MiB) << "a 50th";
  EXPECT_EQ(growth::single_span_limit({.active_bytes = 100_GiB}), 64_MiB);
}

TEST(PoolGrowthPolicy, ALargeGrowthHasSmallSpansAtBothEnds) {
  const Usage usage{.active_bytes = 1_GiB};
  EXPECT_EQ(growth::span_sizes(usage, 20_MiB, 20_MiB), std::vector<std::uint64_t>{20_MiB});
  EXPECT_EQ(growth::span_sizes(usage, 100_MiB, 20_MiB),
            (std::vector<std::uint64_t>{8_MiB, 8_MiB, 16_MiB, 16_MiB, 16_MiB, 16_MiB, 10_MiB, 8_MiB,
                                        2_MiB}));
}

TEST(PoolGrowthPolicy, TheSpansOfAGrowthAddUpToItInWholePages) {
  for (std::uint64_t pages = 1; pages < 3000; pages = pages * 5 / 4 + 1) {
    for (const auto active : {std::uint64_t{0}, 500_MiB, 5_GiB, 90_GiB}) {
      const Usage usage{.active_bytes = active};
      const auto bytes = pages * Backing::kPage;
      const auto sizes = growth::span_sizes(usage, bytes, growth::single_span_limit(usage));
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}), bytes);
      for (const auto size : sizes) {
        EXPECT_GT(size, 0u);
        EXPECT_EQ(size % Backing::kPage, 0u);
      }
    }
  }
}

TEST(PoolGrowthPolicy, ASlabIsATenthOfWhatIsThereOrAsMuchAsIsThereUpTo16MiB) {
  EXPECT_EQ(growth::slab_size({}), 2_MiB);
  EXPECT_EQ(growth::slab_size({.active_bytes = 10_MiB}), 10_MiB);
  EXPECT_EQ(growth::slab_size({.active_bytes = 100_MiB}), 16_MiB);
  EXPECT_EQ(growth::slab_size({.active_bytes = 1_GiB}), 104_MiB) << "in whole pages";
}

TEST(PoolGrowthPolicy, IdleSlabsGoFirstBeyondA16thAboveThePeak) {
  EXPECT_EQ(growth::slab_limit({.peak = 160_MiB}, 0), 170_MiB);
  EXPECT_EQ(growth::slab_limit({.allocated = 150_MiB, .peak = 160_MiB}, 170_MiB), 340_MiB);
}

TEST(PoolGrowthPolicy, ManyArenasReserveFewerAddressesEach) {
  EXPECT_EQ(growth::address_range_size(2_MiB, 1), 64_GiB);
  EXPECT_EQ(growth::address_range_size(2_MiB, 63), 64_GiB);
  EXPECT_EQ(growth::address_range_size(2_MiB, 64), 32_GiB);
  EXPECT_EQ(growth::address_range_size(80_GiB, 64), 80_GiB) << "never less than is needed";
}

}  // namespace
}  // namespace emm::test
