#include "inspect/growth.hpp"

#include <gtest/gtest.h>

#include "base/text_format.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

/// Iterations of which each keeps `kept` bytes of site 1, between marks as `marks` makes them of a
/// number.
std::string training(unsigned iterations, std::uint64_t kept, std::string_view begin,
                     std::string_view end) {
  std::string lines =
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":1,\"frames\":[\"cache.py:7 keep\"]}\n";
  unsigned id = 0;
  for (unsigned i = 1; i <= iterations; ++i) {
    if (!begin.empty()) lines += text::format(begin, i) + "\n";
    for (const std::uint64_t size : {100u, 200u, 300u, 400u}) {
      lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, size);
    }
    for (unsigned back = 0; back < 4; ++back)
      lines += text::format("{\"op\":\"free\",\"id\":{}}\n", id - back);
    if (kept > 0)
      lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"site\":1}\n", ++id, kept);
    if (!end.empty()) lines += text::format(end, i) + "\n";
  }
  return lines;
}

TEST(Growth, IsMeasuredBetweenMarksThatBeginAndEnd) {
  const auto recording =
      recorded(training(5, 64, R"({"op":"mark","text":"step {}","phase":"begin"})",
                        R"({"op":"mark","text":"step {}","phase":"end"})"));
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = growth(lifetimes);

  EXPECT_EQ(found.source, Growth::Source::marks);
  EXPECT_EQ(found.name, "step");
  ASSERT_EQ(found.iterations.size(), 5u);
  EXPECT_EQ(found.iterations[1], (Iteration{.name = "step 2",
                                            .first = 11,
                                            .last = 21,
                                            .peak_bytes = 1064,
                                            .live_at_end_bytes = 128,
                                            .live_at_end = 2}));
  EXPECT_EQ(found.base, 1u);
  EXPECT_EQ(found.bytes, 3 * 64);
  EXPECT_TRUE(found.steady);
  ASSERT_EQ(found.by_site.size(), 1u);
  EXPECT_EQ(found.by_site[0], (Group<SiteId>{.key = SiteId{1}, .count = 3, .bytes = 192}));
}

TEST(Growth, OfInstantMarksLeavesOutTheLastWhichNothingEnds) {
  const auto recording = recorded(training(4, 10, R"({"op":"mark","text":"iteration #{}"})", ""));
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = growth(lifetimes);

  EXPECT_EQ(found.name, "iteration");
  ASSERT_EQ(found.iterations.size(), 3u);
  EXPECT_EQ(found.bytes, 10);
}

TEST(Growth, IsMeasuredBetweenStepsThatRepeatWhereThereAreNoMarks) {
  const auto recording = recorded(R"({"op":"memalloc","id":"weights","size":9999})"
                                  "\n" +
                                  training(6, 50, "", ""));
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = growth(lifetimes);

  EXPECT_EQ(found.source, Growth::Source::steps);
  ASSERT_EQ(found.iterations.size(), 5u);
  EXPECT_EQ(found.iterations[0].first, 1u);
  EXPECT_EQ(found.iterations[0].peak_bytes, 9999u + 1000u);
  EXPECT_EQ(found.iterations[4].live_at_end_bytes, 9999u + 5 * 50u);
  EXPECT_EQ(found.bytes, 3 * 50);
}

TEST(Growth, FindsNothingToCompareWhereNothingRepeats) {
  std::string lines;
  for (unsigned i = 1; i <= 40; ++i)
    lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", i, i * i);
  const auto rising = recorded(lines);
  std::string same = "{\"op\":\"mark\",\"text\":\"warm up\"}\n";
  for (unsigned i = 1; i <= 40; ++i)
    same += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":8}\n", i);
  const auto loop = recorded(same);

  EXPECT_EQ(growth(trace::Lifetimes(rising->trace())).source, Growth::Source::none);
  EXPECT_EQ(growth(trace::Lifetimes(loop->trace())).source, Growth::Source::none);
}

TEST(Growth, TakesTheLayersAtTheEndOfATraceForNoIterations) {
  std::string lines;
  for (unsigned i = 1; i <= 100; ++i)
    lines += text::format("{\"op\":\"memalloc\",\"id\":\"w{}\",\"size\":{}}\n", i, i * i);
  const auto recording = recorded(lines + training(6, 50, "", ""));

  EXPECT_EQ(growth(trace::Lifetimes(recording->trace())).source, Growth::Source::none);
}

TEST(Growth, ThatGoesUpAndDownIsNotSteady) {
  const auto recording = recorded(R"({"op":"mark","text":"a1"}
{"op":"memalloc","id":1,"size":8}
{"op":"mark","text":"a2"}
{"op":"memalloc","id":2,"size":8}
{"op":"mark","text":"a3"}
{"op":"free","id":1}
{"op":"mark","text":"a4"}
{"op":"memalloc","id":4,"size":30}
{"op":"mark","text":"a5"}
)");

  const auto found = growth(trace::Lifetimes(recording->trace()));

  ASSERT_EQ(found.iterations.size(), 4u);
  EXPECT_EQ(found.bytes, 22);
  EXPECT_FALSE(found.steady);
}

/// 60 iterations of different sizes, of which each keeps `kept` bytes of site 1.
std::string restless(std::uint64_t kept) {
  std::string lines =
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":1,\"frames\":[\"cache.py:7 keep\"]}\n";
  unsigned id = 0;
  for (unsigned i = 1; i <= 60; ++i) {
    lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, 1000 + i * i);
    lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, 7000 - i * i);
    lines += text::format("{\"op\":\"free\",\"id\":{}}\n{\"op\":\"free\",\"id\":{}}\n", id, id - 1);
    if (kept > 0)
      lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"site\":1}\n", ++id, kept);
  }
  return lines;
}

TEST(Growth, IsMeasuredBetweenTheLeastLiveInTenthsWhereNothingRepeats) {
  const auto recording = recorded(restless(64));

  const auto found = growth(trace::Lifetimes(recording->trace()));

  EXPECT_EQ(found.source, Growth::Source::floors);
  ASSERT_EQ(found.iterations.size(), 10u);
  EXPECT_EQ(found.iterations[0].first, 0u);
  EXPECT_EQ(found.iterations[1].last, 33u) << "after the second of the frees of the seventh";
  EXPECT_EQ(found.iterations[1].live_at_end_bytes, 6u * 64u);
  EXPECT_EQ(found.iterations[9].live_at_end_bytes, 54u * 64u);
  EXPECT_EQ(found.bytes, 48 * 64);
  EXPECT_TRUE(found.grows());
  ASSERT_EQ(found.by_site.size(), 1u);
  EXPECT_EQ(found.by_site[0], (Group<SiteId>{.key = SiteId{1}, .count = 48, .bytes = 48 * 64}));
}

TEST(Growth, IsNoneWhereWhatIsLeastLiveStaysTheSame) {
  const auto recording = recorded(restless(0));

  const auto found = growth(trace::Lifetimes(recording->trace()));

  EXPECT_EQ(found.bytes, 0);
  EXPECT_FALSE(found.grows());
}

}  // namespace
}  // namespace emm::inspect
