#include "base/clock.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace emm {
namespace {

std::uint64_t kernel_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

TEST(SteadyClock, NeverGoesBack) {
  const SteadyClock clock;
  auto last = clock.now_ns();
  for (int i = 0; i < 100'000; ++i) {
    const auto now = clock.now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SteadyClock, RunsAtTheKernelsRate) {
  const SteadyClock clock;
  // The clock is read inside of what the kernel measures, so it shows no more; and much less only
  // if it is wrong, for the loop is long against what lies between two reads.
  const auto begun = kernel_ns();
  const auto first = clock.now_ns();
  auto last = first;
  auto ended = begun;
  while (ended - begun < 20'000'000) {
    last = clock.now_ns();
    ended = kernel_ns();
  }

  const auto elapsed = static_cast<double>(last - first);
  const auto allowed = static_cast<double>(ended - begun);
  EXPECT_LT(elapsed, allowed * 1.001 + 1000);
  EXPECT_GT(elapsed, allowed * 0.5);
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now_ns(), 0u);

  clock.advance(1500);

  EXPECT_EQ(clock.now_ns(), 1500u);
  EXPECT_EQ(clock.kind(), "simulated");
}

}  // namespace
}  // namespace emm
