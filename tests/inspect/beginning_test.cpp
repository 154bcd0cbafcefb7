// What existed before the recording exists at one moment.
#include <gtest/gtest.h>

#include <string>

#include "base/text_format.hpp"
#include "inspect/description.hpp"
#include "inspect/fit_check.hpp"
#include "inspect/gap.hpp"
#include "inspect/growth.hpp"
#include "inspect/memory_need.hpp"
#include "inspect/profile_text.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

std::string old_memory(unsigned id, std::uint64_t size) {
  return text::format(R"({"op":"memalloc","id":{},"size":{},"preexisting":true})"
                      "\n",
                      id, size);
}
std::string old_segment(unsigned id, std::uint64_t size) {
  return text::format(
      R"({"op":"memalloc","layer":"backing","id":"s{}","size":{},"preexisting":true})"
      "\n",
      id, size);
}
std::string pair_of(unsigned id, std::uint64_t size) {
  return text::format(R"({"op":"memalloc","id":{},"size":{}})"
                      "\n"
                      R"({"op":"free","id":{}})"
                      "\n",
                      id, size, id);
}

/// 20 segments with 300 bytes of 400 live, then `pairs` requests that are freed at once.
std::string warm(unsigned pairs) {
  std::string lines;
  for (unsigned i = 1; i <= 20; ++i) lines += old_segment(i, 400);
  for (unsigned i = 1; i <= 20; ++i) lines += old_memory(i, 300);
  for (unsigned i = 0; i < pairs; ++i) lines += pair_of(100 + i, 7);
  return lines;
}

TEST(Beginning, IsNoGrowth) {
  const auto owner = recorded(warm(200));
  const auto& recording = *owner;
  const trace::Lifetimes lifetimes(recording.trace());
  const auto found = growth(lifetimes);

  EXPECT_EQ(recording.trace().first_moment(), 39u);
  EXPECT_EQ(found.source, Growth::Source::floors);
  EXPECT_EQ(found.bytes, 0);
  EXPECT_FALSE(found.grows());
  EXPECT_TRUE(found.by_size.empty());
  for (const auto& each : found.iterations) {
    EXPECT_GE(each.first, 39u);
    EXPECT_EQ(each.live_at_end_bytes, 6000u);
  }
  EXPECT_FALSE(found.steady) << "what is the same all the time does not grow";
}

TEST(Beginning, IsOneMoment) {
  const auto owner = recorded(warm(3));
  const auto& recording = *owner;
  const trace::Lifetimes lifetimes(recording.trace());
  const auto all = describe(recording, lifetimes).profile;

  ASSERT_TRUE(all.backing);
  EXPECT_EQ(all.backing->reserved, (Peak{.bytes = 8000, .count = 20, .event = 39}));
  EXPECT_EQ(all.backing->live_at_reserved, 6000u);
  EXPECT_EQ(all.live.event, 40u);
  EXPECT_EQ(all.lifetime_events.max, 1u);
  // The moment, and an event for each of the six operations.
  EXPECT_EQ(all.live_over_events.size(), 7u);
  for (const auto bytes : all.live_over_events) EXPECT_GE(bytes, 6000u);
  // A question about half of it is answered about all of it.
  EXPECT_EQ(held_after(lifetimes, 21).bytes, 6000u);
  const auto gap = gap_after(recording, lifetimes, {}, 25);
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->live, 6000u);
  EXPECT_EQ(gap->reserved, 8000u);
  const auto checks = fit_checks(recording, lifetimes, 5000);
  ASSERT_EQ(checks.size(), 1u);
  ASSERT_TRUE(checks[0].live_overrun);
  EXPECT_EQ(checks[0].live_overrun->event, 39u);
  EXPECT_EQ(checks[0].live_overrun->size, 0u);
}

TEST(Beginning, IsTheSameInPasses) {
  for (const auto pairs : {0u, 1u, 3u, 200u}) {
    const auto lines = std::string(R"({"format":"emmctl-trace","version":"1.0"})"
                                   "\n") +
                       warm(pairs);
    const auto read = [&](trace::OperationSink& sink) -> Status {
      const auto source = format::ByteSource::memory(lines);
      const auto summary = trace::read(*source, sink);
      return summary ? Status() : Status(summary.error());
    };
    const auto found = inspect_in_passes(
        "x.jsonl", read,
        [](const auto&, const auto&, auto) -> Result<std::optional<std::uint32_t>> {
          return std::optional<std::uint32_t>();
        });
    ASSERT_TRUE(found && *found != nullptr);
    const auto& passes = **found;
    const auto owner = recorded(warm(pairs));
    const auto& recording = *owner;
    const trace::Lifetimes lifetimes(recording.trace());
    EXPECT_EQ(
        to_text(passes.trace(), passes.profile, passes.growth, {}),
        to_text(recording.trace(), describe(recording, lifetimes).profile, growth(lifetimes), {}));
  }
}

TEST(Beginning, AStateHasNoGrowthAndNoHistory) {
  for (const auto& rows : {std::string(), pair_of(100, 7),
                           std::string(R"({"op":"free","id":1})"
                                       "\n")}) {
    std::string lines = warm(0) + rows;
    for (unsigned step = 0; step < 300; ++step)
      lines += R"({"op":"mark","text":"step"})"
               "\n";
    const auto owner = recorded(lines);
    const auto& recording = *owner;
    const trace::Lifetimes lifetimes(recording.trace());

    EXPECT_TRUE(recording.trace().is_state());
    EXPECT_EQ(growth(lifetimes).source, Growth::Source::none);
    for (const auto& each : fit_checks(recording, lifetimes, std::nullopt))
      EXPECT_FALSE(each.has_history);
  }
  EXPECT_FALSE(recorded(warm(2))->trace().is_state());
}

TEST(Beginning, WhatIsNamedLateWasThereFromTheFirst) {
  const auto owner = recorded(pair_of(1, 10) + pair_of(2, 10) + old_memory(3, 500) +
                              R"({"op":"free","id":3})"
                              "\n" +
                              pair_of(4, 10));
  const auto& recording = *owner;
  const trace::Lifetimes lifetimes(recording.trace());
  const auto all = describe(recording, lifetimes).profile;

  EXPECT_EQ(all.live, (Peak{.bytes = 510, .count = 2, .event = 0}));
  EXPECT_EQ(bounds(lifetimes).at(0).peak_live, 510u);
}

}  // namespace
}  // namespace emm::inspect
