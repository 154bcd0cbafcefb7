#include "trial/compare.hpp"

#include <gtest/gtest.h>

#include "lines.hpp"

namespace emm::trial {
namespace {

std::vector<ManagerFactory> managers(const std::vector<std::string_view>& names) {
  std::vector<ManagerFactory> found;
  for (const auto name : names) found.push_back(with(name).manager);
  return found;
}

CompareOptions on(std::string device) {
  CompareOptions options;
  options.device = std::move(device);
  return options;
}

Comparison compared(const Lines& lines, const std::vector<std::string_view>& names,
                    const CompareOptions& options) {
  auto done = compare(lines.trace(), managers(names), options);
  EXPECT_TRUE(done) << describe(done.error());
  return std::move(*done);
}

TEST(Spread, OfSevenReachesFromTheLeastToTheGreatest) {
  const auto spread = spread_of({5, 1, 4, 7, 3, 2, 6});

  EXPECT_EQ(spread.median, 4);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 7);
  EXPECT_DOUBLE_EQ(spread.confidence, 1 - 2.0 / 128);
}

TEST(Spread, OfNineLeavesTheOutermostOut) {
  const auto spread = spread_of({9, 8, 7, 6, 5, 4, 3, 2, 1});

  EXPECT_EQ(spread.median, 5);
  EXPECT_EQ(spread.low, 2);
  EXPECT_EQ(spread.high, 8);
  EXPECT_DOUBLE_EQ(spread.confidence, 1 - 2.0 * (1 + 9) / 512);
}

TEST(Spread, OfFewNumbersSaysHowUnsureItIs) {
  EXPECT_EQ(spread_of({3}).median, 3);
  EXPECT_EQ(spread_of({3}).confidence, 0);
  EXPECT_EQ(spread_of({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(spread_of({1, 2}).confidence, 0.5);
}

TEST(Compare, MeasuresEachManagerOnTheSameTrace) {
  const Lines lines(alloc("a", 3_MiB) + free("a") + alloc("b", 3_MiB) + free("b"));

  const auto comparison = compared(lines, {"cudart", "default:ratio=1"}, on("sim"));

  EXPECT_EQ(comparison.clock, "simulated");
  EXPECT_EQ(comparison.rounds, 1u);
  EXPECT_FALSE(comparison.engine);
  EXPECT_EQ(comparison.bound, 3_MiB);
  ASSERT_EQ(comparison.contestants.size(), 2u);
  const auto& cudart = comparison.contestants[0];
  const auto& deferring = comparison.contestants[1];
  EXPECT_EQ(cudart.manager, "cudart");
  EXPECT_EQ(cudart.exit_code, 0);
  EXPECT_EQ(cudart.judged.pass.peak_reserved_bytes, 4_MiB);
  EXPECT_EQ(cudart.over_first.median, 1);
  EXPECT_EQ(deferring.judged.pass.peak_reserved_bytes, 8_MiB) << "a is not freed before b is made";
  EXPECT_GT(cudart.warm.median, 0);
  EXPECT_GT(deferring.over_first.median, 0);
}

TEST(Compare, IsTheSameEachTimeOnASimulatedClock) {
  const Lines lines(alloc("a", 3_MiB) + alloc("b", 40_MiB) + free("a") + free("b"));

  const auto one = compared(lines, {"cudart", "async"}, on("sim"));
  const auto other = compared(lines, {"cudart", "async"}, on("sim"));

  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(one.contestants[i].warm_ns, other.contestants[i].warm_ns);
    EXPECT_EQ(one.contestants[i].first_ns, other.contestants[i].first_ns);
  }
}

TEST(Compare, GivesEachManagerItsTurnInEachRound) {
  const Lines lines(alloc("a", 3_MiB) + free("a"));
  auto options = on("sim");
  options.rounds = 3;
  options.passes = 2;
  std::uint64_t steps = 0, total = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t of) {
    steps = done;
    total = of;
  };

  const auto comparison = compared(lines, {"cudart", "default"}, options);

  for (const auto& each : comparison.contestants) EXPECT_EQ(each.warm_ns.size(), 3u);
  EXPECT_EQ(steps, 2u + 2u * 3u);
  EXPECT_EQ(total, steps);
}

TEST(Compare, MeasuresTheReplayItselfOnTheHostsClock) {
  const Lines lines(alloc("a", 3_MiB) + free("a"));
  auto options = on("sim");
  options.host_clock = true;
  options.rounds = 2;

  const auto comparison = compared(lines, {"cudart"}, options);

  EXPECT_EQ(comparison.clock, "host");
  ASSERT_TRUE(comparison.engine);
  EXPECT_GE(comparison.engine->median, 0);
}

TEST(Compare, TellsWhoFails) {
  const Lines lines(alloc("a", 40_MiB) + free("a") + alloc("b", 40_MiB) + free("b"));

  const auto comparison =
      compared(lines, {"cudart", "default:ratio=1,capacity=1GiB"}, on("sim:capacity=32MiB"));

  for (const auto& each : comparison.contestants) {
    EXPECT_EQ(each.exit_code, 1);
    EXPECT_EQ(each.judged.pass.failures, 2u);
    ASSERT_TRUE(each.judged.first_failure);
    EXPECT_EQ(each.judged.first_failure->id, "a");
  }
}

TEST(Compare, EndsWhereItIsInterrupted) {
  const Lines lines(alloc("a", 3_MiB) + free("a"));
  const std::atomic<bool> interrupted{true};
  auto options = on("sim");
  options.interrupted = &interrupted;

  EXPECT_TRUE(compared(lines, {"cudart"}, options).interrupted);
}

}  // namespace
}  // namespace emm::trial
