#include "trial/compare.hpp"

#include <gtest/gtest.h>

#include "lines.hpp"
#include "trial/compare_text.hpp"

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

TEST(MedianInterval, OfSevenReachesFromTheLeastToTheGreatest) {
  const auto interval = median_interval({5, 1, 4, 7, 3, 2, 6});

  EXPECT_EQ(interval.median, 4);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 7);
  EXPECT_DOUBLE_EQ(interval.confidence, 1 - 2.0 / 128);
}

TEST(MedianInterval, OfNineLeavesTheOutermostOut) {
  const auto interval = median_interval({9, 8, 7, 6, 5, 4, 3, 2, 1});

  EXPECT_EQ(interval.median, 5);
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 8);
  EXPECT_DOUBLE_EQ(interval.confidence, 1 - 2.0 * (1 + 9) / 512);
}

TEST(MedianInterval, OfFewNumbersSaysHowUnsureItIs) {
  EXPECT_EQ(median_interval({3}).median, 3);
  EXPECT_EQ(median_interval({3}).confidence, 0);
  EXPECT_EQ(median_interval({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(median_interval({1, 2}).confidence, 0.5);
}

TEST(BestOf, ALittleMoreMemoryIsWorthATenthOfTheTime) {
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 70}, {.bytes = 106, .ns = 2.7}}), 1u);
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 70}, {.bytes = 106, .ns = 8}}), 0u);
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 70}, {.bytes = 112, .ns = 1}}), 0u);
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 70}, {.bytes = 103, .ns = 30}}), 1u) << "about as much";
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 70}, {.bytes = 103, .ns = 40}}), 0u) << "half the time";
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 0}, {.bytes = 105, .ns = 0}}), 0u);
  EXPECT_EQ(best_of({{.bytes = 100, .ns = 9}, {.bytes = 100, .ns = 5}}), 1u)
      << "equal but for time";
}

TEST(Compare, MeasuresEachManagerOnTheSameTrace) {
  const Lines lines(alloc("a", 3_MiB) + free("a") + alloc("b", 3_MiB) + free("b"));

  const auto comparison = compared(lines, {"cudart", "default:ratio=1"}, on("sim"));

  EXPECT_EQ(comparison.clock, "simulated");
  EXPECT_EQ(comparison.rounds, 1u);
  EXPECT_FALSE(comparison.engine);
  ASSERT_EQ(comparison.needs.size(), 1u);
  EXPECT_EQ(comparison.needs[0].peak_live, 3_MiB);
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

std::string on_stream(std::string_view id, std::uint64_t size, std::string_view stream) {
  return alloc(id, size, text::format(",\"stream\":\"{}\"", stream)) + free(id);
}

std::string shown(const Lines& lines, const std::vector<std::string_view>& names,
                  const std::string& device = "sim") {
  return to_text(compared(lines, names, on(device)), lines.trace(), 100);
}

TEST(Compare, ARatioBelowTheNoWaitNeedCarriesItsReason) {
  const Lines lines(on_stream("a", 30_MiB, "s1") + on_stream("b", 20_MiB, "s2"));

  const auto comparison = compared(lines, {"cudart", "pool"}, on("sim"));
  const auto text = to_text(comparison, lines.trace(), 100);

  EXPECT_EQ(comparison.needs[0].peak_live, 30_MiB);
  EXPECT_EQ(comparison.needs[0].no_wait, 50_MiB);
  EXPECT_NE(text.find("peak live 30.00 MiB, no-wait need 50.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("1.000     0.600*  served"), std::string::npos) << text;
  EXPECT_NE(text.find("* less: it waits for work on other streams"), std::string::npos) << text;
  EXPECT_NE(to_json(comparison, lines.trace()).find("\"below_no_wait_need\": \"waits\""),
            std::string::npos);
}

TEST(Compare, ARatioBelowWhatIsLiveSaysThatNotAllWasServed) {
  const Lines lines(alloc("a", 40_MiB) + alloc("b", 4_MiB, ",\"result\":\"oom\"") + free("a"));

  const auto text = shown(lines, {"cudart"}, "sim:capacity=40MiB");

  EXPECT_NE(text.find("peak live 44.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("0.909!  1 refused again"), std::string::npos) << text;
  EXPECT_NE(text.find("! less: not all that the trace asks for was served"), std::string::npos);
}

TEST(Compare, WhereNobodyNeedsToWaitThereIsOneBound) {
  const auto text = shown(Lines(alloc("a", 3_MiB)), {"cudart"});

  EXPECT_EQ(text.find("no-wait"), std::string::npos) << text;
}

TEST(Compare, EachDeviceHasItsOwnBounds) {
  const Lines lines(alloc("a", 30_MiB, ",\"device\":0") + free("a") +
                    alloc("b", 20_MiB, ",\"device\":1"));

  const auto comparison = compared(lines, {"cudart"}, on("sim"));
  const auto text = to_text(comparison, lines.trace(), 100);

  ASSERT_EQ(comparison.needs.size(), 2u);
  const auto& reserved = comparison.contestants[0].judged.peak_reserved_by_device;
  ASSERT_EQ(reserved.size(), 2u);
  EXPECT_EQ(reserved[0].second, 30_MiB);
  EXPECT_EQ(reserved[1].second, 20_MiB);
  EXPECT_NE(text.find("device 0: peak live 30.00 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("device 1: peak live 20.00 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("cudart  20.00 MiB  1.000\n"), std::string::npos) << text;
}

TEST(Compare, ItsTablesFitEightyColumns) {
  std::string lines;
  for (int i = 0; i < 4; ++i)
    lines += on_stream(text::format("a{}", i), 1023_MiB, text::format("s{}", i));
  for (const auto device : {0, 1}) {
    const auto more = device == 0 ? "" : alloc("z", 500_MiB, ",\"device\":1");
    const auto text = shown(Lines(lines + more), {"default", "pool:backing=cumem", "async"});
    std::size_t line = 0;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      if (++line > 4) {
        EXPECT_LE(end - at, 80u) << text;
      }
    }
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
