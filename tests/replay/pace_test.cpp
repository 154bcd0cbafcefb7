#include "replay/pace.hpp"

#include <gtest/gtest.h>

#include "emm/context.hpp"
#include "emm/memory_manager.hpp"
#include "fake_stack.hpp"
#include "trace/operation.hpp"
#include "trace_builder.hpp"

namespace emm::replay {
namespace {

TEST(Pace, MovesASimulatedClockToTheRecordedTimes) {
  ManualClock clock;
  clock.advance(1000);
  Pace pace(clock, 2, nullptr);
  Histogram lateness;
  pace.begin(500);

  EXPECT_EQ(pace.wait(500, lateness), 0u);
  EXPECT_EQ(pace.wait(700, lateness), 100u);
  EXPECT_EQ(clock.now_ns(), 1100u);
  EXPECT_EQ(lateness.percentiles().max, 0u);
}

TEST(Pace, SaysHowLateAnEventIs) {
  ManualClock clock;
  Pace pace(clock, 1, nullptr);
  Histogram lateness;
  pace.begin(0);
  clock.advance(50);

  EXPECT_EQ(pace.wait(20, lateness), 0u);
  EXPECT_EQ(lateness.percentiles().max, 30u);
}

TEST(Pace, AnInterruptEndsAWaitOfYears) {
  SteadyClock clock;
  std::atomic<bool> interrupted{true};
  Pace pace(clock, 1, &interrupted);
  Histogram lateness;
  pace.begin(0);

  pace.wait(std::uint64_t{1} << 60, lateness);

  EXPECT_EQ(lateness.count(), 1u);
}

TEST(Pace, AReplayKeepsTimesAndDoesNotCountTheWaits) {
  TraceBuilder builder;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    auto made = TraceBuilder::sized(trace::Op::memalloc, id, 8);
    made.members.add(trace::Member::time_ns);
    made.time_ns = 7'000 + id * 1'000'000;
    builder.add(made);
  }
  const auto trace = builder.done();
  FakeStack stack;

  const auto summary = Engine(trace, stack, {.pace = 1}).run();

  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->pass.elapsed_ns, 1'000'100u);
  EXPECT_DOUBLE_EQ(summary->pass.ns_per_event, 100.0);
  ASSERT_TRUE(summary->lateness);
  EXPECT_EQ(summary->lateness->count, 2u);
  EXPECT_EQ(summary->lateness->max, 0u);
}

}  // namespace
}  // namespace emm::replay
