#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/prng.hpp"
#include "managers/pool/block_map.hpp"

namespace emm::test {
namespace {

using pool::BlockMap;
using pool::kNone;

constexpr std::uint64_t kStart = 0x10000;

BlockMap of(std::uint32_t granules) {
  BlockMap blocks(9);
  blocks.extend(false, kStart, granules);
  return blocks;
}

std::uint32_t largest_free(const BlockMap& blocks) {
  std::uint32_t largest = 0;
  blocks.for_each_free(
      1, [&](std::uint32_t block) { largest = std::max(largest, blocks.size(block)); });
  return largest;
}

TEST(PoolBlockMap, GivesTheSmallestBlockThatFitsAndOfThoseTheLowest) {
  auto blocks = of(128);
  const auto a = blocks.allocate(8);
  blocks.allocate(1);
  const auto b = blocks.allocate(4);
  blocks.allocate(1);
  const auto c = blocks.allocate(4);
  blocks.allocate(1);
  for (const auto block : {a, c, b}) blocks.free(block);
  blocks.coalesce_kept();

  const auto at_b = blocks.address(b);
  const auto at_c = blocks.address(c);
  EXPECT_EQ(blocks.address(blocks.allocate(3)), at_b);
  EXPECT_EQ(blocks.address(blocks.allocate(4)), at_c);
  EXPECT_EQ(blocks.address(blocks.allocate(5)), kStart);
}

TEST(PoolBlockMap, JoinsNeighboursInAnyOrder) {
  for (const auto& order :
       std::vector<std::vector<std::size_t>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    auto blocks = of(3);
    std::vector<std::uint32_t> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(blocks.allocate(1));
    EXPECT_EQ(blocks.allocate(1), kNone);
    for (const auto i : order) blocks.free(taken[i]);
    EXPECT_TRUE(blocks.coalesce_kept());
    EXPECT_FALSE(blocks.coalesce_kept());
    EXPECT_EQ(largest_free(blocks), 3u);
    EXPECT_NE(blocks.allocate(3), kNone);
  }
}

TEST(PoolBlockMap, KeepsTheTwoOfASmallSizeThatWereFreedLastWhole) {
  auto blocks = of(12);
  std::vector<std::uint32_t> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(blocks.allocate(4));
  for (const auto block : taken) blocks.free(block);
  EXPECT_EQ(largest_free(blocks), 4u);  // the first is free, the others are kept
  EXPECT_EQ(blocks.allocate(5), kNone);
  EXPECT_EQ(blocks.allocate(4), taken[2]);
  EXPECT_EQ(blocks.allocate(4), taken[1]);
  EXPECT_EQ(blocks.allocate(4), taken[0]);
}

TEST(PoolBlockMap, ACookieNamesOneUse) {
  auto blocks = of(8);
  const auto first = blocks.cookie(blocks.allocate(8));
  blocks.free(blocks.find(first));
  EXPECT_EQ(blocks.find(first), kNone);
  const auto second = blocks.cookie(blocks.allocate(8));
  EXPECT_NE(first, second);
  EXPECT_EQ(blocks.find(first), kNone);
  blocks.defer(blocks.find(second));
  EXPECT_EQ(blocks.find(second), kNone);
  EXPECT_EQ(blocks.find(~std::uint64_t{0}), kNone);
}

TEST(PoolBlockMap, WhatIsAddedJoinsTheEndOnlyWhereItFollows) {
  auto blocks = of(4);
  blocks.extend(true, kStart + 4 * 512, 4);
  blocks.extend(false, kStart + 8 * 512, 4);
  EXPECT_EQ(largest_free(blocks), 8u);
  EXPECT_EQ(blocks.size(blocks.last()), 4u);
}

TEST(PoolBlockMap, WhatIsRemovedPartsItsNeighbours) {
  auto blocks = of(9);
  std::uint32_t whole = kNone;
  blocks.for_each_free(1, [&](std::uint32_t block) { whole = block; });
  const auto middle = blocks.split_at(whole, kStart + 3 * 512);
  blocks.split_at(middle, kStart + 6 * 512);
  blocks.remove(middle);
  EXPECT_EQ(largest_free(blocks), 3u);
  const auto low = blocks.allocate(3);
  const auto high = blocks.allocate(3);
  blocks.free(low);
  blocks.free(high);
  EXPECT_EQ(blocks.allocate(4), kNone);
}

TEST(PoolBlockMap, CarvesAPartOutOfAFreeBlock) {
  auto blocks = of(10);
  std::uint32_t whole = kNone;
  blocks.for_each_free(1, [&](std::uint32_t block) { whole = block; });
  const auto part = blocks.carve(whole, kStart + 2 * 512, 3);
  EXPECT_EQ(blocks.address(part), kStart + 2 * 512);
  EXPECT_EQ(blocks.size(part), 3u);
  EXPECT_EQ(largest_free(blocks), 5u);
  blocks.free(part);
  blocks.coalesce_kept();
  EXPECT_EQ(largest_free(blocks), 10u);
}

// Against a map of bytes: nothing overlaps, nothing is lost, what is free side by side is one
// block.
TEST(PoolBlockMap, KeepsTheMapUnderRandomUse) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    constexpr std::uint32_t kTotal = 5000;
    auto blocks = of(kTotal);
    std::map<std::uint64_t, std::uint32_t> live;  // address to block
    std::uint32_t used = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random.chance(0.55)) {
        const auto granules = static_cast<std::uint32_t>(random.log_uniform(1, 400));
        auto block = blocks.allocate(granules);
        if (block == kNone && blocks.coalesce_kept()) block = blocks.allocate(granules);
        if (block == kNone) {
          EXPECT_LT(largest_free(blocks), granules);
          continue;
        }
        ASSERT_EQ(blocks.size(block), granules);
        ASSERT_TRUE(live.emplace(blocks.address(block), block).second);
        used += granules;
      } else if (!live.empty()) {
        const auto which =
            std::next(live.begin(), static_cast<std::ptrdiff_t>(random.below(live.size())));
        used -= blocks.size(which->second);
        blocks.free(which->second);
        live.erase(which);
      }
    }
    auto at = kStart;
    for (const auto& [address, block] : live) {
      ASSERT_GE(address, at);
      at = address + blocks.bytes(blocks.size(block));
    }
    std::uint32_t all = 0;
    blocks.for_each([&](std::uint32_t block) { all += blocks.size(block); });
    EXPECT_EQ(all, kTotal);
    std::map<std::uint64_t, std::uint64_t> seen, joined;
    blocks.for_each_free_block(
        [&](std::uint64_t address, std::uint64_t size) { seen[address] = size; });
    blocks.coalesce_kept();
    blocks.for_each_free_block(
        [&](std::uint64_t address, std::uint64_t size) { joined[address] = size; });
    EXPECT_EQ(seen, joined);
    std::uint32_t free = 0;
    blocks.for_each_free(1, [&](std::uint32_t block) {
      free += blocks.size(block);
      const auto above = blocks.after(block);
      EXPECT_TRUE(above == kNone || blocks.state(above) != BlockMap::State::free);
    });
    EXPECT_EQ(free + used, kTotal);
    for (std::uint32_t bound = 0; bound < kTotal + 100; bound += 1 + bound / 64) {
      std::uint32_t most = 0;
      bool one_of_nearly_as_much = false;
      blocks.for_each_free(1, [&](std::uint32_t block) {
        const auto size = blocks.size(block);
        if (size < bound) most = std::max(most, size);
        one_of_nearly_as_much |= size >= bound && size <= bound + bound / 32;
      });
      EXPECT_LE(most, blocks.largest_below(bound)) << bound;
      if (one_of_nearly_as_much) continue;
      EXPECT_LE(blocks.largest_below(bound), most + most / 32) << bound;
    }
  }
}

}  // namespace
}  // namespace emm::test
