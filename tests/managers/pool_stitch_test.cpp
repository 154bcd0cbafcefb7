// Stitching without a driver: what is free at the ends of spans, which spans a mapping is made of,
// where a block lies in it, and what the next generation remembers.
#include <gtest/gtest.h>

#include <vector>

#include "base/units.hpp"
#include "managers/pool/span_ends.hpp"
#include "managers/pool/stitch_cache.hpp"
#include "managers/pool/stitch_plan.hpp"

namespace emm::test {
namespace {

using pool::AliasMapping;
using pool::BlockMap;
using pool::Inactive;
using pool::kNone;
using pool::plan_stitch;
using pool::SpanEnds;
using pool::SpanList;
using pool::StitchCache;
using pool::StitchedPart;
using pool::StitchRecord;

constexpr std::uint64_t kGranule = 512;
constexpr std::uint64_t kBase = 1_GiB;

/// Spans of 8 MiB, one behind the other from kBase on, all active. used() takes what is not free.
class PoolStitch : public ::testing::Test {
 protected:
  void make(std::uint32_t count, std::uint32_t active) {
    spans.addresses().add(kBase, 1_GiB);
    for (std::uint32_t at = 0; at < count; ++at)
      spans.add({.address = kBase + at * 8_MiB, .size = 8_MiB, .handle = {at + 1}});
    spans.addresses().advance(count * 8_MiB);
    while (spans.active_count() < active) {
      const auto run = spans.activate_next(1, true);
      blocks.extend(spans.active_count() > 1, run.address, blocks.granules(run.size));
    }
  }
  void use(std::uint64_t from, std::uint64_t to) {
    std::uint32_t free_block = kNone;
    blocks.for_each_free(1, [&](std::uint32_t block) {
      if (blocks.is_free_and_holds(block, kBase + from, kBase + to)) free_block = block;
    });
    ASSERT_NE(free_block, kNone);
    blocks.carve(free_block, kBase + from, blocks.granules(to - from));
  }
  AliasMapping mapping_of(std::vector<std::uint32_t> chosen, std::uint32_t first_new = 1000) {
    auto mapping = AliasMapping::of(std::move(chosen), spans, first_new);
    mapping.base = {64_GiB};
    return mapping;
  }
  bool holds(const AliasMapping& mapping, std::uint64_t wanted, Inactive inactive = Inactive::any) {
    ends.scan(blocks, spans, kGranule);
    return pool::holds(mapping, wanted, spans, ends, kGranule, inactive);
  }

  BlockMap blocks{9};
  SpanList spans;
  SpanEnds ends;
};

TEST_F(PoolStitch, OnlyWhatIsFreeAtTheEndsOfSpansCanBeStitched) {
  make(3, 3);
  use(0, 6_MiB);        // span 0 is free at its end
  use(10_MiB, 11_MiB);  // span 1 at its start, and from 11 to 12 in its middle
  use(12_MiB, 22_MiB);  // span 2 at its end
  ends.scan(blocks, spans, kGranule);
  EXPECT_EQ(ends.of(0).low, 0u);
  EXPECT_EQ(ends.of(0).high, 2_MiB);
  EXPECT_EQ(ends.of(1).low, 2_MiB);
  EXPECT_EQ(ends.of(1).high, 0u);
  EXPECT_EQ(ends.of(2).high, 2_MiB);
  EXPECT_EQ(ends.runs().size(), 2u) << "from 6 to 10, and from 22 to 24";

  ends.scan(blocks, spans, 3_MiB);
  EXPECT_EQ(ends.of(2).high, 0u) << "smaller runs are passed over";
}

TEST_F(PoolStitch, AMappingHoldsABlockInItsEndsAndTheWholeSpansBetween) {
  make(4, 4);
  use(0, 6_MiB);
  use(16_MiB, 19_MiB);  // span 2 is not whole
  use(27_MiB, 32_MiB);  // span 3 is free at its start
  const auto by_whole = mapping_of({0, 1, 3});
  EXPECT_TRUE(holds(by_whole, 13_MiB)) << "2 + 8 + 3";
  EXPECT_FALSE(holds(by_whole, 13_MiB + kGranule));
  EXPECT_FALSE(holds(by_whole, 8_MiB)) << "span 1 alone holds that";
  EXPECT_FALSE(holds(mapping_of({0, 2, 3}), 12_MiB)) << "span 2 is not free";
  EXPECT_FALSE(holds(mapping_of({3, 1, 0}), 12_MiB)) << "the ends are the wrong way round";
}

TEST_F(PoolStitch, InactiveSpansOfAMappingMustBeTheNext) {
  make(5, 3);
  use(0, 6_MiB);
  use(8_MiB, 24_MiB);
  EXPECT_TRUE(holds(mapping_of({0, 3}), 9_MiB));
  EXPECT_TRUE(holds(mapping_of({0, 3, 4}), 17_MiB));
  EXPECT_FALSE(holds(mapping_of({0, 4}), 9_MiB)) << "span 3 would have to be active before";
  EXPECT_TRUE(holds(mapping_of({0, 3}, 3), 9_MiB, Inactive::as_grown));
  EXPECT_FALSE(holds(mapping_of({0, 3}, 1000), 9_MiB, Inactive::as_grown))
      << "the arena did not grow for this mapping";
}

TEST_F(PoolStitch, ABlockLeavesAWholeSpanAsWholeAsItCan) {
  make(3, 3);
  use(8_MiB, 16_MiB);
  use(19_MiB, 24_MiB);  // span 0 is whole, span 2 has 3 MiB at its start
  const auto mapping = mapping_of({0, 2});
  ASSERT_TRUE(holds(mapping, 5_MiB));
  std::vector<StitchedPart> parts;
  const auto address = pool::place_in(mapping, 5_MiB, spans, ends, kGranule, parts);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].start, kBase + 6_MiB);
  EXPECT_EQ(parts[0].end, kBase + 8_MiB);
  EXPECT_EQ(parts[1].start, kBase + 16_MiB);
  EXPECT_EQ(parts[1].end, kBase + 19_MiB) << "all of the run that is not whole";
  EXPECT_EQ(address.value, 64_GiB + 6_MiB);
}

TEST_F(PoolStitch, NeighboursInTheArenaAreOnePart) {
  make(3, 3);
  use(0, 6_MiB);
  use(20_MiB, 24_MiB);
  const auto mapping = mapping_of({0, 1, 2});
  ASSERT_TRUE(holds(mapping, 14_MiB));
  std::vector<StitchedPart> parts;
  pool::place_in(mapping, 14_MiB, spans, ends, kGranule, parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].start, kBase + 6_MiB);
  EXPECT_EQ(parts[0].end, kBase + 20_MiB);
}

TEST_F(PoolStitch, APlanPutsTheRunsThatReachFarthestAtItsEnds) {
  make(6, 6);
  use(0, 5_MiB);        // 3 MiB at the end of span 0
  use(8_MiB, 14_MiB);   // 2 MiB at the end of span 1, whole span 2
  use(24_MiB, 32_MiB);  // span 3
  use(34_MiB, 40_MiB);  // 2 MiB at the start of span 4
  use(44_MiB, 48_MiB);  // 4 MiB at the start of span 5
  ends.scan(blocks, spans, kGranule);
  const auto plan =
      plan_stitch(blocks, spans, ends, {.wanted = 15_MiB, .end_address = kBase + 48_MiB});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->spans, (std::vector<std::uint32_t>{0, 2, 5}));
  EXPECT_EQ(plan->missing, 0u);
}

TEST_F(PoolStitch, APlanAsksForWhatIsMissingUnlessNothingIsSaved) {
  make(4, 4);
  use(0, 5_MiB);
  use(8_MiB, 24_MiB);
  use(28_MiB, 32_MiB);
  ends.scan(blocks, spans, kGranule);
  const auto plan = plan_stitch(blocks, spans, ends, {.wanted = 11_MiB});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->missing, 4_MiB);
  EXPECT_EQ(plan->spans, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(plan->insert_at, 1u) << "between the first and the last";
  EXPECT_FALSE(plan_stitch(blocks, spans, ends, {.wanted = 11_MiB, .tail = 7_MiB}))
      << "growing by 4 MiB behind the tail needs no mapping";
}

TEST_F(PoolStitch, WhereStitchingIsFrequentNewSpansComeWhereTheyAreAtHome) {
  make(4, 4);
  use(0, 5_MiB);
  use(8_MiB, 16_MiB);
  use(18_MiB, 30_MiB);  // 2 MiB at the start of span 2; 2 MiB at the end of the arena
  ends.scan(blocks, spans, kGranule);
  const auto plan = plan_stitch(
      blocks, spans, ends,
      {.wanted = 10_MiB, .tail = 2_MiB, .end_address = kBase + 32_MiB, .prefer_at_home = true});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->at_home);
  EXPECT_EQ(plan->spans, (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(plan->insert_at, 1u) << "behind the tail";
  EXPECT_EQ(plan->missing, 6_MiB);
}

TEST_F(PoolStitch, OneRunGivesBothEndsOnlyAsALastResort) {
  make(3, 3);
  use(0, 6_MiB);
  use(18_MiB, 24_MiB);  // one run: 2 MiB of span 0, span 1, 2 MiB of span 2
  ends.scan(blocks, spans, kGranule);
  const auto wanted = 14_MiB;
  const auto normal = plan_stitch(blocks, spans, ends, {.wanted = wanted});
  const auto last = plan_stitch(blocks, spans, ends, {.wanted = wanted, .last_resort = true});
  ASSERT_TRUE(normal && last);
  EXPECT_EQ(normal->missing, 4_MiB);
  EXPECT_EQ(last->missing, 2_MiB);
  EXPECT_EQ(last->spans, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST_F(PoolStitch, SpansThatAreNotNeededAreDropped) {
  make(4, 4);
  use(0, 6_MiB);
  use(30_MiB, 32_MiB);
  ends.scan(blocks, spans, kGranule);
  std::vector<std::uint32_t> chosen{0, 1, 2, 3};
  pool::drop_excess(chosen, 10_MiB, spans, ends);
  EXPECT_EQ(chosen, (std::vector<std::uint32_t>{2, 3}));
}

TEST_F(PoolStitch, TheOldestMappingThatHoldsServes) {
  make(3, 3);
  use(0, 6_MiB);
  use(20_MiB, 24_MiB);
  ends.scan(blocks, spans, kGranule);
  StitchCache cache;
  cache.add(mapping_of({1, 2}));
  cache.add(mapping_of({0, 1, 2}));
  cache.add(mapping_of({0, 1, 2}));
  const auto find = [&](std::uint64_t wanted) {
    return cache.find(wanted, spans, ends, kGranule, Inactive::any);
  };
  EXPECT_EQ(find(10_MiB), 0u);
  EXPECT_EQ(find(14_MiB), 1u);
  EXPECT_EQ(find(15_MiB), kNone);
  EXPECT_EQ(cache.mapped_spans(), 8u);
  EXPECT_EQ(cache.use_in(1, 1), 3u);
  EXPECT_EQ(cache.use_in(1, 1), 0u) << "once a generation";
  EXPECT_EQ(cache.use_in(2, 1), 3u);
}

TEST_F(PoolStitch, AGenerationIsReplayedAsLongAsRequestAndStateAreTheSame) {
  make(2, 2);
  StitchCache cache;
  cache.add(mapping_of({0, 1}));
  const std::vector<StitchedPart> parts{{.start = 1, .end = 2, .block = 7}, {.start = 3, .end = 4}};
  const StitchRecord stitched{
      .wanted = 9_MiB, .mapping = 0, .active_before = 2, .active_needed = 2};
  const StitchRecord grown{.wanted = 5_MiB, .mapping = kNone, .active_before = 2};
  EXPECT_EQ(cache.expected(9_MiB, 2), nullptr);
  cache.remember(stitched, parts);
  cache.remember(grown, {});
  EXPECT_EQ(cache.expected(9_MiB, 2), nullptr) << "not in the same generation";
  cache.begin_generation();

  EXPECT_EQ(cache.expected(9_MiB, 1), nullptr) << "another state";
  EXPECT_EQ(cache.expected(8_MiB, 2), nullptr) << "another request";
  EXPECT_FALSE(cache.expects_growth(9_MiB, 2));
  ASSERT_NE(cache.expected(9_MiB, 2), nullptr);
  ASSERT_EQ(cache.expected_parts().size(), 2u);
  EXPECT_EQ(cache.expected_parts()[0].block, 7u);
  cache.remember(*cache.expected(9_MiB, 2), cache.expected_parts());
  EXPECT_EQ(cache.expected(5_MiB, 2), nullptr);
  EXPECT_TRUE(cache.expects_growth(5_MiB, 2));
}

TEST_F(PoolStitch, MappingsGoWithTheirSpansAndTheHistoryWithThem) {
  make(4, 4);
  StitchCache cache;
  cache.add(mapping_of({0, 1}));
  cache.add(mapping_of({0, 2}));
  cache.remember({.wanted = 9_MiB, .mapping = 1, .active_before = 4}, {});
  cache.begin_generation();
  const auto taken = cache.take_mappings_of({1}, 4);
  cache.rename_spans(spans.erase({1}));
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].spans, (std::vector<std::uint32_t>{0, 1}));
  ASSERT_EQ(cache.mappings().size(), 1u);
  EXPECT_EQ(cache[0].spans, (std::vector<std::uint32_t>{0, 1})) << "span 2 is now span 1";
  EXPECT_EQ(cache.expected(9_MiB, 4), nullptr);
}

}  // namespace
}  // namespace emm::test
