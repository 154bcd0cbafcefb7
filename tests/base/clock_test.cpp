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
  // Each read lies between two of the kernel's, so bounds hold however long a read is interrupted.
  struct Read {
    std::int64_t before, at, after;
  };
  const auto read = [&] {
    const auto before = static_cast<std::int64_t>(kernel_ns());
    const auto at = static_cast<std::int64_t>(clock.now_ns());
    return Read{before, at, static_cast<std::int64_t>(kernel_ns())};
  };
  const auto first = read();
  auto last = first;
  while (last.after - first.before < 20'000'000) last = read();

  const auto elapsed = static_cast<double>(last.at - first.at);
  EXPECT_LE(elapsed, static_cast<double>(last.after - first.before) * 1.001 + 1000);
  EXPECT_GE(elapsed, static_cast<double>(last.before - first.after) * 0.999 - 1000);
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
