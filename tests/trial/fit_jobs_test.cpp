#include <gtest/gtest.h>

#include "emm/manager_entry.hpp"
#include "lines.hpp"
#include "trace/lifetimes.hpp"
#include "trial/fit.hpp"
#include "trial/fit_text.hpp"

namespace emm::trial {
namespace {

/// The trials of several threads are those of one: each has its own device and manager.
TEST(FitJobs, SeveralThreadsFindWhatOneFinds) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += alloc(text::format("b{}", i), static_cast<std::uint64_t>(i % 13 + 1) * 3_MiB + 5_KiB);
    if (i % 3 == 2) lines += free(text::format("b{}", i - 2));
  }
  const auto trace = Lines(lines).trace();
  const auto needs = inspect::bounds(trace::Lifetimes(trace), trace::CountedRequests::all);
  for (const auto* const manager : {"pool", "cudart", "default", "async", "bfc"}) {
    const auto setting = with(manager);
    const auto of = [&](std::size_t jobs) {
      std::uint64_t told = 0;
      auto found = fit(
          trace, setting,
          {.start = need_of(needs),
           .hint = 0,
           .jobs = jobs,
           .progress = [&](std::uint64_t trials, std::uint64_t) { EXPECT_EQ(trials, ++told); }});
      EXPECT_TRUE(found) << describe(found.error());
      return std::move(*found);
    };
    const auto one = of(1);
    const auto several = of(4);
    EXPECT_EQ(several.answer.capacity, one.answer.capacity) << manager;
    EXPECT_EQ(several.answer.trials, one.answer.trials) << manager;
    EXPECT_EQ(several.trials, one.trials) << manager;
    EXPECT_EQ(several.peak_reserved, one.peak_reserved) << manager;
  }
}

}  // namespace
}  // namespace emm::trial
