#include "trial/fit.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "driver/driver.hpp"
#include "emm/manager_entry.hpp"
#include "lines.hpp"
#include "trace/lifetimes.hpp"
#include "trial/fit_text.hpp"

namespace emm::trial {
namespace {

constexpr std::string_view kGuard = "{\"op\":\"defer_cleanup\"}\n";
constexpr std::string_view kGuardEnds = "{\"op\":\"end_defer_cleanup\"}\n";

using trace::CountedRequests;

std::vector<inspect::MemoryNeed> needs(const trace::Trace& trace,
                                       CountedRequests asked = CountedRequests::all) {
  return inspect::bounds(trace::Lifetimes(trace), asked);
}

Fit fit_of(const trace::Trace& trace, const Setting& setting,
           CountedRequests asked = CountedRequests::all) {
  const auto other = asked == CountedRequests::all ? CountedRequests::served : CountedRequests::all;
  auto found = fit(trace, setting,
                   {.asked = asked,
                    .start = need_of(needs(trace, asked)),
                    .other_start = need_of(needs(trace, other)),
                    .hint = 0,
                    .progress = {}});
  EXPECT_TRUE(found) << describe(found.error());
  return std::move(*found);
}
Fit fit_of(const std::string& lines, const Setting& setting,
           CountedRequests asked = CountedRequests::all) {
  return fit_of(Lines(lines).trace(), setting, asked);
}

std::string text_of(const std::string& lines, const Setting& setting,
                    CountedRequests asked = CountedRequests::all) {
  const auto trace = Lines(lines).trace();
  const FitShown shown{
      .trace = trace, .manager = setting.manager.name, .needs = needs(trace, asked), .width = 4000};
  return to_text(fit_of(trace, setting, asked), shown);
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

  EXPECT_EQ(fit.answer.capacity, 10_MiB) << "4 MiB for b and 6 MiB for c";
  EXPECT_EQ(need_of(needs(trace)), 8_MiB);
  EXPECT_EQ(fit.peak_reserved, 10_MiB);
  ASSERT_TRUE(fit.below && fit.below->first_failure);
  EXPECT_EQ(fit.below->first_failure->event, 3u);
  EXPECT_EQ(fit.below->first_failure->id, "c");
  EXPECT_EQ(fit.below->first_failure->outcome, trace::Outcome::oom);
  EXPECT_EQ(fit.below->first_failure->live_bytes, 3_MiB);
  EXPECT_EQ(fit.below->first_failure->reserved_bytes, 4_MiB);
  EXPECT_TRUE(fit.answer.below(true).empty());
  EXPECT_TRUE(fit.answer.above(true).empty());
}

TEST(Fit, TheDefaultManagerMakesDeferredFreesBeforeItRunsOut) {
  const auto lines = alloc("a", 8_MiB) + free("a") + alloc("b", 8_MiB);

  EXPECT_EQ(fit_of(lines, with("default:ratio=1")).answer.capacity, 8_MiB);
}

TEST(Fit, TheDefaultManagerHoldsDeferredFreesWhileCleanupIsDeferred) {
  const auto lines = alloc("a", 8_MiB) + free("a") + std::string(kGuard) + alloc("b", 8_MiB) +
                     std::string(kGuardEnds);

  EXPECT_EQ(fit_of(lines, with("default:ratio=1")).answer.capacity, 16_MiB);
  EXPECT_EQ(fit_of(lines, with("default")).answer.capacity, 8_MiB)
      << "8 MiB are more than a fifth of the device, so the free was made at once";
}

TEST(Fit, APoolNeedsTheSlabThatItCannotGiveBack) {
  const auto lines = alloc("a", 1_MiB) + alloc("b", 1_MiB) + free("a") + alloc("c", 2_MiB);

  EXPECT_EQ(fit_of(lines, with("pool:backing=cumem")).answer.capacity, 4_MiB)
      << "b keeps 2 MiB, and c has 2 MiB of its own";
}

TEST(Fit, AManagerThatIsNotMonotoneIsFoundOut) {
  // The free of a waits where 10 MiB are at most a fifth of the device, from 50 MiB on, and then
  // cannot be made while cleanup is deferred: 48 MiB are enough, 50 to 56 are not, 58 are.
  const auto lines = alloc("a", 10_MiB) + free("a") + std::string(kGuard) + twelve();

  const auto fit = fit_of(lines, with("default"));

  EXPECT_EQ(fit.answer.capacity, 58_MiB);
  EXPECT_EQ(fit.answer.below(true), std::vector<std::uint64_t>{48_MiB});
  EXPECT_EQ(fit.answer.least_passing(), 48_MiB);
  for (const auto capacity : {50_MiB, 52_MiB, 54_MiB, 56_MiB}) {
    ASSERT_TRUE(fit.answer.trials.contains(capacity)) << capacity;
    EXPECT_FALSE(fit.answer.trials.at(capacity)) << capacity;
  }
}

TEST(Fit, ThirtyTwoFurtherCapacitiesBelowAreTried) {
  const auto fit = fit_of(alloc("a", 1_GiB) + alloc("b", 1_GiB), with("cudart"));

  EXPECT_EQ(fit.answer.capacity, 2_GiB);
  EXPECT_EQ(fit.answer.below(false).size(), 1 + kTriesBelow) << "one step below was known before";
}

TEST(Fit, TheLeastDeviceIsEnoughForATraceOfHostMemory) {
  const auto lines = std::string("{\"op\":\"memhostalloc\",\"id\":1,\"size\":1000000}\n") +
                     "{\"op\":\"free\",\"id\":1}\n";

  for (const auto* manager : bundled_managers()) {
    const auto fit = fit_of(lines, with(std::string(manager->name)));
    EXPECT_EQ(fit.answer.capacity, kStep) << manager->name;
    EXPECT_FALSE(fit.below) << manager->name;
  }
}

TEST(Fit, NothingIsJudgedWhereTheManagerDeclinesAll) {
  const auto fit = fit_of(alloc("a", 1_MiB), with("host-only"));

  EXPECT_TRUE(fit.judged_nothing);
  EXPECT_FALSE(fit.answer.capacity);
}

/// cudart where the device has a capacity that `works` likes; else every request fails.
Setting moody(std::function<bool(std::uint64_t capacity)> works) {
  const auto good = with("cudart"), bad = with("cudart", {"limiting:max=1"});
  Setting setting;
  setting.manager = {.name = "moody", .make = [=](const ManagerContext& context) {
                       const auto info = context.driver->mem_get_info();
                       EXPECT_TRUE(info);
                       return (works(info->total) ? good : bad).manager.make(context);
                     }};
  return setting;
}

TEST(Fit, TheAnswerIsAboveAllThatFails) {
  const auto fails = [](std::uint64_t capacity) {
    return (capacity >= 20_MiB && capacity < 28_MiB) || capacity == 60_MiB;
  };

  const auto fit = fit_of(alloc("a", 10_MiB), moody([&](std::uint64_t c) { return !fails(c); }));

  EXPECT_EQ(fit.answer.capacity, 62_MiB);
  EXPECT_EQ(fit.answer.least_passing(), 10_MiB);
  EXPECT_TRUE(fit.answer.above(true).empty());
  EXPECT_EQ(fit.answer.above(false).back(), 126_MiB) << "64 MiB above, which is more than twice";
  for (const auto capacity : {20_MiB, 22_MiB, 24_MiB, 26_MiB, 60_MiB}) {
    ASSERT_TRUE(fit.answer.trials.contains(capacity)) << capacity;
    EXPECT_FALSE(fit.answer.trials.at(capacity)) << capacity;
  }
}

TEST(Fit, UpToTwiceTheAnswerEachHundredthIsTried) {
  const auto fit = fit_of(alloc("a", 1000_MiB), with("cudart"));

  EXPECT_EQ(fit.answer.capacity, 1000_MiB);
  for (std::uint64_t above = 2_MiB; above <= 64_MiB; above += 2_MiB)
    EXPECT_TRUE(fit.answer.trials.contains(1000_MiB + above)) << above;
  for (std::uint64_t percent = 7; percent <= 100; ++percent)
    EXPECT_TRUE(fit.answer.trials.contains(1000_MiB + percent * 10_MiB)) << percent;
  EXPECT_EQ(fit.answer.above(false).size(), 32u + 94u);
}

TEST(Fit, AFailureFarAboveMovesTheAnswerThere) {
  const auto setting =
      moody([](std::uint64_t capacity) { return capacity < 1800_MiB || capacity > 1850_MiB; });

  const auto fit = fit_of(alloc("a", 1000_MiB), setting);

  EXPECT_EQ(fit.answer.capacity, 1852_MiB);
  EXPECT_EQ(fit.answer.least_passing(), 1000_MiB);
  EXPECT_EQ(fit.answer.above(false).back(), 2 * 1852_MiB);
  const auto text = text_of(alloc("a", 1000_MiB), setting);
  EXPECT_NE(text.find("1,000 MiB are enough by luck: some capacities in between fail."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("to 1,850 MiB"), std::string::npos) << text;
}

TEST(Fit, AnInterruptAfterTheAnswerLeavesItWithWhatIsKnown) {
  const auto trace = Lines(alloc("a", 10_MiB)).trace();
  std::atomic<bool> interrupted{false};
  auto setting = moody([](std::uint64_t capacity) { return capacity != 14_MiB; });
  setting.interrupted = &interrupted;
  const FitOptions options{
      .start = 10_MiB, .hint = 0, .progress = [&](std::uint64_t trials, std::uint64_t) {
        interrupted = trials == 5;
      }};

  const auto fit = trial::fit(trace, setting, options);

  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->interrupted);
  EXPECT_EQ(fit->answer.capacity, 16_MiB) << "14 MiB are known to fail";
  EXPECT_EQ(fit->trials, 5u);
}

TEST(Fit, ATraceThatFailsAtAnyCapacitySaysHow) {
  const auto limited = fit_of(alloc("a", 12_MiB), with("cudart", {"limiting:max=8MiB"}));
  const auto impossible =
      fit_of(alloc("a", 4_MiB) + alloc("b", 0, ",\"expect\":\"ok\""), with("default"));

  EXPECT_FALSE(limited.answer.capacity);
  ASSERT_TRUE(limited.below && limited.below->first_failure);
  EXPECT_EQ(limited.below->first_failure->id, "a");
  EXPECT_FALSE(impossible.answer.capacity);
  ASSERT_TRUE(impossible.below && impossible.below->first_failure);
  EXPECT_EQ(impossible.below->first_failure->id, "b");
}

TEST(Fit, EachOfSeveralDevicesHasTheCapacity) {
  const auto lines = alloc("a", 6_MiB, ",\"device\":0") + alloc("b", 14_MiB, ",\"device\":1");

  EXPECT_EQ(fit_of(lines, with("cudart")).answer.capacity, 14_MiB);
}

TEST(Fit, AnInterruptLeavesWhatIsKnown) {
  const auto trace = Lines(alloc("a", 6_MiB) + alloc("b", 14_MiB)).trace();
  std::atomic<bool> interrupted{false};
  auto setting = with("cudart");
  setting.interrupted = &interrupted;
  std::uint64_t seen = 0;
  const FitOptions options{
      .start = 2_MiB, .hint = 0, .progress = [&](std::uint64_t trials, std::uint64_t) {
        interrupted = (seen = trials) == 3;
      }};

  const auto fit = trial::fit(trace, setting, options);

  ASSERT_TRUE(fit);
  EXPECT_TRUE(fit->interrupted);
  EXPECT_FALSE(fit->answer.capacity);
  EXPECT_EQ(fit->trials, 3u);
}

TEST(Fit, OfManagersThatNeedTheSameTheFastestComesFirst) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += alloc(text::format("b{}", i), 4_MiB) + free(text::format("b{}", i));
  const auto trace = Lines(lines).trace();
  std::vector<Fitted> all;
  for (const auto* name : {"cudart", "pool"})
    all.push_back({.fit = fit_of(trace, with(name)),
                   .shown = {.trace = trace, .manager = name, .needs = needs(trace)}});

  const auto& [slow, fast] = std::pair(all[0].fit.driver_ns, all[1].fit.driver_ns);
  const auto shown = brief(all);

  ASSERT_TRUE(slow && fast);
  EXPECT_EQ(all[0].fit.answer.capacity, all[1].fit.answer.capacity);
  EXPECT_GT(*slow, 5 * *fast) << "twenty driver calls, not one";
  EXPECT_EQ(shown.answer.front(), "pool serves the trace with least: 4.00 MiB.");
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
