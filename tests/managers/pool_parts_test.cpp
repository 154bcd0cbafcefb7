// The parts of an arena that are small enough for one file of tests: the queues of frees, the
// generation, the address ranges and the spans. None of them needs a driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "managers/pool/block_map.hpp"
#include "managers/pool/deferred_frees.hpp"
#include "managers/pool/generation.hpp"
#include "managers/pool/remote_frees.hpp"
#include "managers/pool/span_list.hpp"
#include "managers/pool/statistics.hpp"
#include "managers/pool/stitched_blocks.hpp"

namespace emm::test {
namespace {

using pool::AddressRanges;
using pool::DeferredFrees;
using pool::Generation;
using pool::kNone;
using pool::PendingFree;
using pool::RemoteFrees;
using pool::SpanList;
using pool::StitchedBlocks;
using pool::UsageCounts;

std::vector<std::uint64_t> cookies_of(std::span<const PendingFree> frees) {
  std::vector<std::uint64_t> cookies;
  for (const auto& free : frees) cookies.push_back(free.cookie);
  return cookies;
}

TEST(PoolRemoteFrees, GivesEachFreeOnce) {
  RemoteFrees queue;
  EXPECT_TRUE(queue.seems_empty());
  for (std::uint64_t cookie = 1; cookie <= 20; ++cookie) queue.push({.cookie = cookie});
  EXPECT_FALSE(queue.seems_empty());
  auto cookies = cookies_of(queue.take_all());
  std::sort(cookies.begin(), cookies.end());
  ASSERT_EQ(cookies.size(), 20u);
  for (std::uint64_t cookie = 1; cookie <= 20; ++cookie) EXPECT_EQ(cookies[cookie - 1], cookie);
  EXPECT_TRUE(queue.seems_empty());
  EXPECT_TRUE(queue.take_all().empty());
}

TEST(PoolRemoteFrees, KeepsTheEventOfAFreeOnAnotherStream) {
  RemoteFrees queue;
  queue.push({.cookie = 7, .on_other_stream = true, .event = {5}});
  const auto taken = queue.take_all();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0].on_other_stream);
  EXPECT_EQ(taken[0].event, EventHandle{5});
}

TEST(PoolRemoteFrees, LosesNoFreeOfAnyThread) {
  constexpr std::uint64_t kThreads = 4, kFrees = 2000;
  RemoteFrees queue;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&queue, thread] {
      for (std::uint64_t at = 0; at < kFrees; ++at) queue.push({.cookie = thread * kFrees + at});
    });
  }
  std::vector<bool> seen(kThreads * kFrees, false);
  std::size_t count = 0;
  const auto take = [&] {
    for (const auto& free : queue.take_all()) {
      ASSERT_FALSE(seen[free.cookie]);
      seen[free.cookie] = true;
      ++count;
    }
  };
  while (count < seen.size() / 2) take();
  for (auto& thread : threads) thread.join();
  take();
  EXPECT_EQ(count, seen.size());
}

TEST(PoolDeferredFrees, ComeBackOldestFirst) {
  DeferredFrees deferred;
  deferred.push({.block = 1, .bytes = 512});
  deferred.push({.block = 2, .bytes = 1024});
  deferred.push({.block = 3, .bytes = 2048, .is_first = false});
  EXPECT_EQ(deferred.bytes(), 3584u);
  EXPECT_EQ(deferred.count(), 2u) << "the third is a part of the second";
  EXPECT_EQ(deferred.oldest(2).size(), 2u);
  EXPECT_EQ(deferred.oldest(100).size(), 3u);

  std::vector<std::uint32_t> popped;
  const auto pop = [&](std::size_t count) {
    deferred.pop(count, [&](const auto& free) { popped.push_back(free.block); });
  };
  pop(1);
  EXPECT_EQ(deferred.bytes(), 3072u);
  EXPECT_EQ(deferred.oldest(1)[0].block, 2u);
  deferred.push({.block = 4, .bytes = 512});
  pop(3);
  EXPECT_EQ(popped, (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_TRUE(deferred.is_empty());
  EXPECT_EQ(deferred.bytes(), 0u);
  EXPECT_EQ(deferred.count(), 0u);
}

TEST(PoolGeneration, BeginsWithNothing) {
  Generation generation;
  generation.note_allocated(5_MiB);
  generation.note_allocated(3_MiB);
  generation.note_stitched(4);
  EXPECT_EQ(generation.peak(), 5_MiB);
  EXPECT_EQ(generation.requests(10), 10u);

  generation.begin_next(10);
  EXPECT_EQ(generation.number(), 2u);
  EXPECT_EQ(generation.peak(), 0u);
  EXPECT_EQ(generation.stitched_spans(), 0u);
  EXPECT_EQ(generation.requests(13), 3u);
}

TEST(PoolGeneration, MapsInVainWhatItMapsForNoHigherPeak) {
  Generation generation;
  const auto live = [&](std::uint64_t peak, std::uint64_t mapped) {
    generation.note_allocated(peak);
    generation.note_mapped(mapped);
    generation.begin_next(0);
  };
  live(10_MiB, 4);
  EXPECT_EQ(generation.stitched_in_vain(), 0u) << "the first generation is higher than none";
  live(12_MiB, 3);
  EXPECT_EQ(generation.stitched_in_vain(), 0u);
  live(11_MiB, 2);
  EXPECT_EQ(generation.stitched_in_vain(), 2u);
  live(12_MiB, 1);
  EXPECT_EQ(generation.stitched_in_vain(), 3u);
}

TEST(PoolUsageCounts, ThePeakOfWhatIsActiveHoldsWhatIsDeferred) {
  UsageCounts counts;
  counts.allocate(100, 512);
  counts.allocate(100, 512);
  counts.before_deferred_changes(0, 0);
  counts.free(100, 512);
  counts.after_deferred_changed();
  counts.allocate(600, 1024);

  const auto total = counts.total(512, 1);
  EXPECT_EQ(total.allocated_bytes.current, 1536u);
  EXPECT_EQ(total.allocated_bytes.peak, 1536u);
  EXPECT_EQ(total.active_bytes.current, 2048u);
  EXPECT_EQ(total.active_bytes.peak, 2048u);
  EXPECT_EQ(total.active.current, 3u);
  EXPECT_EQ(total.requested_bytes.total, 800u);
}

TEST(PoolStitchedBlocks, IndexesAreUsedAgain) {
  StitchedBlocks blocks;
  const auto first = blocks.add();
  const auto second = blocks.add();
  EXPECT_NE(first, second);
  blocks[first].parts = {1, 2};
  blocks.erase(first);
  EXPECT_TRUE(blocks.all()[first].parts.empty());
  EXPECT_EQ(blocks.add(), first);
}

TEST(PoolAddressRanges, KnowWhichSpanAPageIsIn) {
  AddressRanges ranges;
  ranges.add(64_MiB, 32_MiB);
  EXPECT_EQ(ranges.next(), 64_MiB);
  EXPECT_EQ(ranges.left(), 32_MiB);
  ranges.name_pages({.address = 64_MiB, .size = 4_MiB}, 0);
  ranges.name_pages({.address = 68_MiB, .size = 2_MiB}, 1);
  ranges.advance(6_MiB);
  ranges.add(256_MiB, 8_MiB);
  ranges.name_pages({.address = 256_MiB, .size = 2_MiB}, 2);
  EXPECT_EQ(ranges.span_at(68_MiB - 1), 0u);
  EXPECT_EQ(ranges.span_at(68_MiB), 1u);
  EXPECT_EQ(ranges.span_at(257_MiB), 2u);
}

TEST(PoolAddressRanges, NothingIsPlacedInARangeThatIsAbandoned) {
  AddressRanges ranges;
  EXPECT_EQ(ranges.left(), 0u);
  ranges.add(64_MiB, 32_MiB);
  ranges.advance(2_MiB);
  ranges.abandon_last();
  EXPECT_EQ(ranges.left(), 0u);
  EXPECT_TRUE(ranges.any_is_abandoned());
  ranges.add(256_MiB, 8_MiB);
  EXPECT_EQ(ranges.left(), 8_MiB);
  EXPECT_FALSE(ranges.last_is_abandoned());
  EXPECT_TRUE(ranges.any_is_abandoned());
}

TEST(PoolAddressRanges, UnusedOnesAreTakenButForTheLast) {
  AddressRanges ranges;
  for (const auto base : {64_MiB, 128_MiB, 192_MiB}) ranges.add(base, 32_MiB);
  const auto taken =
      ranges.take_unused([](const AddressRanges::Range& range) { return range.base == 64_MiB; });
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].base, 128_MiB);
  ranges.rewind();
  ranges.keep_up_to(66_MiB, 68_MiB);
  EXPECT_EQ(ranges.next(), 192_MiB) << "another range";
  ranges.keep_up_to(194_MiB, 198_MiB);
  EXPECT_EQ(ranges.next(), 198_MiB);
  EXPECT_EQ(ranges.take_all().size(), 2u);
  EXPECT_TRUE(ranges.is_empty());
}

/// Spans of 2, 4, 6, ... MiB: two that follow each other, a gap, and two more.
SpanList four_spans() {
  SpanList spans;
  spans.addresses().add(64_MiB, 1_GiB);
  std::uint64_t at = 64_MiB;
  for (const auto size : {2_MiB, 4_MiB, 6_MiB, 8_MiB}) {
    spans.add({.address = at, .size = size, .handle = {at}});
    at += size + (size == 4_MiB ? 2_MiB : 0);
  }
  return spans;
}

TEST(PoolSpanList, SpansBecomeActiveInTheirOrderAndAsRuns) {
  auto spans = four_spans();
  EXPECT_EQ(spans.active_count(), 0u);
  EXPECT_EQ(spans.inactive_bytes(), 20_MiB);
  EXPECT_EQ(spans.next_inactive_bytes(5_MiB), 6_MiB);
  EXPECT_EQ(spans.next_run_before(4), 6_MiB);
  EXPECT_EQ(spans.next_run_before(1), 2_MiB);

  const auto first = spans.activate_next(20_MiB, true);
  EXPECT_EQ(first.address, 64_MiB);
  EXPECT_EQ(first.size, 6_MiB) << "up to the gap";
  EXPECT_EQ(spans.active_bytes(), 6_MiB);
  EXPECT_EQ(spans.activate_next(1, true).size, 6_MiB);
  EXPECT_FALSE(spans.all_are_active());
  EXPECT_EQ(spans.activate_next(20_MiB, false).size, 8_MiB);
  EXPECT_TRUE(spans.all_are_active());
  spans.deactivate_all();
  EXPECT_EQ(spans.inactive_bytes(), 20_MiB);
}

TEST(PoolSpanList, SlabsAreNotJoined) {
  auto spans = four_spans();
  EXPECT_EQ(spans.activate_next(20_MiB, false).size, 2_MiB);
}

TEST(PoolSpanList, FindsSpansByAddress) {
  SpanList spans;
  for (const auto address : {30_MiB, 10_MiB, 20_MiB})
    spans.add({.address = address, .size = 2_MiB});
  EXPECT_EQ(spans.by_address(), (std::vector<std::uint32_t>{1, 2, 0}));
  EXPECT_EQ(spans.place_from(10_MiB), 0u);
  EXPECT_EQ(spans.place_from(10_MiB + 1), 1u);
  std::vector<std::uint32_t> within;
  spans.for_each_within(10_MiB, 31_MiB, [&](std::uint32_t span) { within.push_back(span); });
  EXPECT_EQ(within, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(spans.segment_count(), 3u) << "each slab is a segment";
  EXPECT_EQ(four_spans().segment_count(), 2u);
}

TEST(PoolSpanList, ErasedSpansGiveTheirIndexesToThoseBehind) {
  auto spans = four_spans();
  spans.activate_next(20_MiB, true);
  spans.activate_next(1, true);
  ASSERT_EQ(spans.active_count(), 3u);
  const auto new_index = spans.erase({1, 3});
  EXPECT_EQ(new_index, (std::vector<std::uint32_t>{0, kNone, 1, kNone}));
  EXPECT_EQ(spans.count(), 2u);
  EXPECT_EQ(spans.active_count(), 2u);
  EXPECT_EQ(spans.active_bytes(), 8_MiB);
  EXPECT_EQ(spans.bytes(), 8_MiB);
  EXPECT_EQ(spans.at(73_MiB), 1u) << "its pages have its new index";
}

}  // namespace
}  // namespace emm::test
