#include "trial/fit.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "inspect/lives.hpp"
#include "lines.hpp"
#include "trial/fit_text.hpp"

namespace emm::trial {
namespace {

constexpr std::string_view kGuard = "{\"op\":\"defer_cleanup\"}\n";
constexpr std::string_view kGuardEnds = "{\"op\":\"end_defer_cleanup\"}\n";

std::vector<inspect::Need> needs(const trace::Trace& trace) {
  return inspect::bounds(inspect::Lives(trace));
}

Fit fit_of(const trace::Trace& trace, const Setting& setting) {
  auto found = fit(trace, setting, {.start = need_of(needs(trace)), .hint = 0, .progress = {}});
  EXPECT_TRUE(found) << describe(found.error());
  return std::move(*found);
}
Fit fit_of(const std::string& lines, const Setting& setting) {
  return fit_of(Lines(lines).trace(), setting);
}

/// Twelve requests of 3 MiB, which take 4 MiB of the device each.
std::string twelve() {
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += alloc(text::format("b{}", i), 3_MiB);
  return lines;
}

TEST(Fit, CudartNeedsWholePagesOfEachRequest) {
  const Lines lines(alloc("a", 3_MiB) + alloc("b", 3_MiB) + free("a") + alloc("c", 5_MiB));
  const auto trace = lines.trace();

  const auto fit = fit_of(trace, with("cudart"));

  EXPECT_EQ(fit.capacity, 10_MiB) << "4 MiB for b and 6 MiB for c";
  EXPECT_EQ(need_of(needs(trace)), 8_MiB);
  EXPECT_EQ(fit.peak_reserved, 10_MiB);
  ASSERT_TRUE(fit.below && fit.below->first_failure);
  EXPECT_EQ(fit.below->first_failure->event, 3u);
  EXPECT_EQ(fit.below->first_failure->id, "c");
  EXPECT_EQ(fit.below->first_failure->outcome, trace::Outcome::oom);
  EXPECT_EQ(fit.below->first_failure->live_bytes, 3_MiB);
  EXPECT_EQ(fit.below->first_failure->reserved_bytes, 4_MiB);
  EXPECT_TRUE(fit.passing_below.empty());
}

TEST(Fit, TheDefaultManagerMakesDeferredFreesBeforeItRunsOut) {
  const auto lines = alloc("a", 8_MiB) + free("a") + alloc("b", 8_MiB);

  EXPECT_EQ(fit_of(lines, with("default:ratio=1")).capacity, 8_MiB);
}

TEST(Fit, TheDefaultManagerHoldsDeferredFreesWhileCleanupIsDeferred) {
  const auto lines = alloc("a", 8_MiB) + free("a") + std::string(kGuard) + alloc("b", 8_MiB) +
                     std::string(kGuardEnds);

  EXPECT_EQ(fit_of(lines, with("default:ratio=1")).capacity, 16_MiB);
  EXPECT_EQ(fit_of(lines, with("default")).capacity, 8_MiB)
      << "8 MiB are more than a fifth of the device, so the free was made at once";
}

TEST(Fit, APoolNeedsTheSlabThatItCannotGiveBack) {
  const auto lines = alloc("a", 1_MiB) + alloc("b", 1_MiB) + free("a") + alloc("c", 2_MiB);

  EXPECT_EQ(fit_of(lines, with("pool:backing=cumem")).capacity, 4_MiB)
      << "b keeps 2 MiB, and c has 2 MiB of its own";
}

TEST(Fit, AManagerThatIsNotMonotoneIsFoundOut) {
  // The free of a waits where 10 MiB are at most a fifth of the device, from 50 MiB on, and then
  // cannot be made while cleanup is deferred: 48 MiB are enough, 50 to 56 are not, 58 are.
  const auto lines = alloc("a", 10_MiB) + free("a") + std::string(kGuard) + twelve();

  const auto fit = fit_of(lines, with("default"));

  EXPECT_EQ(fit.capacity, 58_MiB);
  EXPECT_EQ(fit.passing_below, std::vector<std::uint64_t>{48_MiB});
  for (const auto capacity : {50_MiB, 52_MiB, 54_MiB, 56_MiB}) {
    ASSERT_TRUE(fit.trials.contains(capacity)) << capacity;
    EXPECT_FALSE(fit.trials.at(capacity)) << capacity;
  }
}

TEST(Fit, ThirtyTwoFurtherCapacitiesBelowAreTried) {
  const auto fit = fit_of(alloc("a", 1_GiB) + alloc("b", 1_GiB), with("cudart"));

  EXPECT_EQ(fit.capacity, 2_GiB);
  EXPECT_EQ(fit.tried_below.size(), kTriesBelow);
  EXPECT_EQ(std::adjacent_find(fit.tried_below.begin(), fit.tried_below.end()),
            fit.tried_below.end())
      << "each is another";
  EXPECT_LT(fit.tried_below.back(), 2_GiB - kStep) << "one step below was known before";
}

TEST(Fit, TheLeastDeviceIsEnoughForATraceOfHostMemory) {
  const auto lines = std::string("{\"op\":\"memhostalloc\",\"id\":1,\"size\":1000000}\n") +
                     "{\"op\":\"free\",\"id\":1}\n";

  for (const auto* manager : {"host-only", "default", "cudart", "pool"}) {
    const auto fit = fit_of(lines, with(manager));
    EXPECT_EQ(fit.capacity, kStep) << manager;
    EXPECT_FALSE(fit.below) << manager;
  }
}

TEST(Fit, NothingIsJudgedWhereTheManagerDeclinesAll) {
  const auto fit = fit_of(alloc("a", 1_MiB), with("host-only"));

  EXPECT_TRUE(fit.judged_nothing);
  EXPECT_FALSE(fit.capacity);
}

TEST(Fit, ARequestThatIsToFailMustFail) {
  const auto lines = alloc("a", 4_MiB) + alloc("b", 16_MiB, ",\"expect\":\"oom\"");

  const auto fit = fit_of(lines, with("cudart"));

  EXPECT_EQ(fit.capacity, 4_MiB);
  EXPECT_FALSE(run(Lines(lines).trace(), with("cudart"), 20_MiB)->violation_count == 0)
      << "where b is served the trace does not pass";
}

TEST(Fit, WhatTheRecordingRefusedMayFailAndIsServedByMore) {
  const auto lines =
      alloc("a", 4_MiB) + alloc("b", 16_MiB, ",\"result\":\"oom\"") + alloc("c", 2_MiB);

  const auto fit = fit_of(lines, with("cudart"));
  const auto never =
      fit_of(alloc("a", 1ull << 50, ",\"result\":\"oom\"") + alloc("c", 2_MiB), with("cudart"));

  EXPECT_EQ(fit.capacity, 6_MiB);
  EXPECT_EQ(fit.refused, 1u);
  EXPECT_EQ(fit.all_served, 20_MiB) << "freed at once, as the program never held it";
  EXPECT_EQ(never.capacity, 2_MiB);
  EXPECT_FALSE(never.all_served);
}

TEST(Fit, ATraceThatFailsAtAnyCapacitySaysHow) {
  const auto limited = fit_of(alloc("a", 12_MiB), with("cudart", {"limiting:max=8MiB"}));
  const auto impossible =
      fit_of(alloc("a", 4_MiB) + alloc("b", 0, ",\"expect\":\"ok\""), with("default"));

  EXPECT_FALSE(limited.capacity);
  ASSERT_TRUE(limited.below && limited.below->first_failure);
  EXPECT_EQ(limited.below->first_failure->id, "a");
  EXPECT_FALSE(impossible.capacity);
  ASSERT_TRUE(impossible.below && impossible.below->first_failure);
  EXPECT_EQ(impossible.below->first_failure->id, "b");
}

TEST(Fit, EachOfSeveralDevicesHasTheCapacity) {
  const auto lines = alloc("a", 6_MiB, ",\"device\":0") + alloc("b", 14_MiB, ",\"device\":1");

  EXPECT_EQ(fit_of(lines, with("cudart")).capacity, 14_MiB);
}

TEST(Fit, AnInterruptLeavesWhatIsKnown) {
  const auto trace = Lines(alloc("a", 6_MiB) + alloc("b", 14_MiB)).trace();
  std::atomic<bool> interrupted{false};
  auto setting = with("cudart");
  setting.interrupted = &interrupted;
  std::uint64_t seen = 0;
  const FitOptions options{.start = 2_MiB, .hint = 0, .progress = [&](std::uint64_t trials) {
                             interrupted = (seen = trials) == 3;
                           }};

  const auto fit = trial::fit(trace, setting, options);

  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->interrupted);
  EXPECT_FALSE(fit->capacity);
  EXPECT_EQ(fit->trials.size(), 3u);
}

TEST(Fit, TheAnswerTellsNeedAndWasteApart) {
  const auto trace = Lines(alloc("a", 3_MiB) + alloc("b", 3_MiB)).trace();
  const auto fit = fit_of(trace, with("cudart"));

  const auto text =
      to_text(fit, {.trace = trace, .manager = "cudart", .needs = needs(trace), .width = 400});

  EXPECT_NE(
      text.find("cudart serves the trace with 8.00 MiB (8,388,608 bytes), and not with 2 MiB less. "
                "The program itself needs 6.00 MiB (6,291,456 bytes), whoever serves it; the other "
                "2.00 MiB (33.3 %) are the manager's waste."),
      std::string::npos)
      << text;
}

}  // namespace
}  // namespace emm::trial
