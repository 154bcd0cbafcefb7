#include "trial/verdict.hpp"

#include <gtest/gtest.h>

namespace emm::trial {
namespace {

constexpr MedianInterval ratio(double low, double high) {
  return {.median = (low + high) / 2, .low = low, .high = high, .confidence = 0.99};
}

Contestant contestant(std::string name, std::vector<double> warm, std::uint64_t reserved) {
  Contestant one{.manager = std::move(name)};
  one.warm_ns = one.first_ns = std::move(warm);
  one.judged.pass.peak_reserved_bytes = reserved;
  return one;
}

Comparison comparison(std::vector<Contestant> contestants) {
  Comparison of;
  of.clock = "host";
  of.threshold = 0.02;
  of.contestants = std::move(contestants);
  return of;
}

const PairVerdict& verdict(const std::vector<PairVerdict>& all, std::string_view measure) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& each) { return each.measure == measure; });
  EXPECT_NE(found, all.end()) << measure;
  return *found;
}

TEST(Standing, IsBetterOrWorseWhereAllOfTheIntervalIsBeyondTheThreshold) {
  EXPECT_EQ(standing_of(ratio(1.03, 1.07), 0.02), Standing::worse);
  EXPECT_EQ(standing_of(ratio(0.93, 0.97), 0.02), Standing::better);
  EXPECT_EQ(standing_of(ratio(0.99, 1.01), 0.02), Standing::same);
  EXPECT_EQ(standing_of(ratio(1.01, 1.03), 0.02), Standing::inconclusive);
  EXPECT_EQ(standing_of(ratio(0.95, 1.05), 0.02), Standing::inconclusive);
}

TEST(Standing, OfTooFewRoundsIsInconclusive) {
  auto few = ratio(2, 3);
  few.confidence = 0.75;

  EXPECT_EQ(standing_of(few, 0.02), Standing::inconclusive);
}

TEST(Verdicts, AreOfEachPairAndMeasure) {
  const std::vector<double> slow(8, 110), quick(8, 100);
  const auto all =
      verdicts_of(comparison({contestant("a", quick, 1000), contestant("b", slow, 1000),
                              contestant("c", quick, 900)}),
                  1000, "as recorded");

  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].size(), 1u) << "against the recorded manager alone";
  EXPECT_EQ(verdict(all[1], "ns_per_event").standing, Standing::worse);
  EXPECT_EQ(verdict(all[1], "reserved").standing, Standing::same);
  EXPECT_EQ(in_words(verdict(all[1], "ns_per_event")), "worse 1.10");
  EXPECT_EQ(verdict(all[2], "reserved").against, "a");
  EXPECT_EQ(verdict(all[2], "reserved").standing, Standing::better);
  EXPECT_EQ(all[2].back().against, "as recorded");
  EXPECT_EQ(all[2].back().standing, Standing::better);
}

TEST(Verdicts, OfOneThatServesLessAreInconclusive) {
  auto lazy = contestant("lazy", std::vector<double>(8, 50), 10);
  lazy.judged.pass.failures = 3;
  const auto all = verdicts_of(
      comparison({contestant("a", std::vector<double>(8, 100), 1000), std::move(lazy)}));

  EXPECT_EQ(verdict(all[1], "ns_per_event").standing, Standing::inconclusive);
  EXPECT_EQ(verdict(all[1], "reserved").standing, Standing::inconclusive);
  EXPECT_EQ(verdict(all[1], "failures").standing, Standing::worse);
}

TEST(Verdicts, ThatAreInconclusiveSayWhy) {
  auto lazy = contestant("lazy", std::vector<double>(8, 50), 10);
  lazy.judged.pass.failures = 3;
  const auto all =
      verdicts_of(comparison({contestant("a", std::vector<double>(8, 100), 1000), std::move(lazy),
                              contestant("few", {100, 101}, 1000),
                              contestant("noisy", {80, 120, 70, 130, 90, 110, 60, 140}, 1000)}));

  EXPECT_EQ(verdict(all[1], "reserved").doubt, Doubt::other_work);
  EXPECT_EQ(verdict(all[1], "failures").doubt, std::nullopt);
  EXPECT_EQ(verdict(all[2], "ns_per_event").doubt, Doubt::few_rounds);
  EXPECT_EQ(verdict(all[2], "reserved").doubt, std::nullopt);
  EXPECT_EQ(verdict(all[3], "ns_per_event").doubt, Doubt::wide_interval);
  EXPECT_EQ(in_words_with_doubt(verdict(all[3], "ns_per_event")),
            "inconclusive 1.00 [0.60-1.40]: the interval is too wide to tell");
}

}  // namespace
}  // namespace emm::trial
