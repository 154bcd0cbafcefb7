#include "managers/pool_blocks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.hpp"
#include "base/units.hpp"

namespace emm::test {
namespace {

TEST(PoolBlocks, GivesTheSmallestBlockThatFitsAndOfThoseTheLowest) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 64_KiB});
  const auto a = blocks.take(4096, {});
  const auto wall = blocks.take(512, {});
  const auto b = blocks.take(2048, {});
  const auto wall2 = blocks.take(512, {});
  blocks.release(a->cookie, {});
  blocks.release(b->cookie, {});

  EXPECT_EQ(blocks.take(1500, {})->ptr, b->ptr);
  EXPECT_EQ(blocks.take(1500, {})->ptr, a->ptr);
  EXPECT_LT(wall->ptr, wall2->ptr);
}

TEST(PoolBlocks, JoinsNeighboursInAnyOrder) {
  for (const auto& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    PoolBlocks blocks(512);
    blocks.add_slab({.base = {0x10000}, .size = 1536});
    std::vector<PoolBlocks::Taken> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(*blocks.take(512, {}));
    EXPECT_FALSE(blocks.take(1, {}));
    for (const auto i : order) blocks.release(taken[static_cast<std::size_t>(i)].cookie, {});
    EXPECT_EQ(blocks.largest_free_bytes(), 1536u);
    EXPECT_TRUE(blocks.take(1536, {}));
  }
}

TEST(PoolBlocks, ACookieIsGoodOnce) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 4096});
  const auto first = *blocks.take(4096, {});
  blocks.release(first.cookie, {});
  const auto second = *blocks.take(4096, {});
  EXPECT_EQ(first.ptr, second.ptr);
  EXPECT_NE(first.cookie, second.cookie);
  blocks.release(first.cookie, {});
  EXPECT_EQ(blocks.live_bytes(), 4096u);
}

TEST(PoolBlocks, WhatOneStreamFreedAnotherDoesNotGetAtOnce) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 4096});
  blocks.release(blocks.take(4096, {1})->cookie, {1});

  EXPECT_FALSE(blocks.take(4096, {2}));
  const auto parked = blocks.park_best(4096);
  ASSERT_TRUE(parked);
  EXPECT_EQ(parked->streams, Unfinished::on({1}));
  EXPECT_FALSE(blocks.take(4096, {1})) << "it is set aside";
  blocks.unpark(*parked, true);
  EXPECT_TRUE(blocks.take(4096, {2}));
}

TEST(PoolBlocks, MemoryFreedOnAnotherStreamThanItsOwnWaitsForBoth) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 4096});
  blocks.release(blocks.take(4096, {1})->cookie, {2});

  EXPECT_FALSE(blocks.take(4096, {1}));
  EXPECT_FALSE(blocks.take(4096, {2}));
  EXPECT_EQ(blocks.park_best(1)->streams, Unfinished::on({2}, {1}));
}

TEST(PoolBlocks, AFreedBlockJoinsMemoryThatNobodyUsesWhenItsStreamNeedsIt) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 4096});
  blocks.release(blocks.take(512, {1})->cookie, {1});
  EXPECT_FALSE(blocks.take(4096, {1}));

  blocks.merge_for({2});
  EXPECT_FALSE(blocks.take(4096, {1}));
  blocks.merge_for({1});
  EXPECT_TRUE(blocks.take(4096, {1}));
}

TEST(PoolBlocks, OnlySlabsWithoutMemoryInUseAreIdle) {
  PoolBlocks blocks(512);
  blocks.add_slab({.base = {0x10000}, .size = 4096});
  blocks.add_slab({.base = {0x20000}, .size = 8192});
  const auto taken = *blocks.take(4096, {});

  EXPECT_FALSE(blocks.remove_idle_slab(12288));
  EXPECT_EQ(blocks.remove_idle_slab(0)->base.value, 0x20000u);
  EXPECT_FALSE(blocks.remove_idle_slab(0));
  blocks.release(taken.cookie, {});
  EXPECT_EQ(blocks.remove_idle_slab(0)->base.value, 0x10000u);
  EXPECT_EQ(blocks.reserved_bytes(), 0u);
  EXPECT_FALSE(blocks.take(1, {}));
}

/// What a pool has to keep true, written without looking at how.
class Model {
 public:
  void took(std::uint64_t address, std::uint64_t size, StreamHandle stream) {
    for (std::uint64_t at = address / 512; at < (address + size + 511) / 512; ++at) {
      auto& cell = cells_.at(at);
      EXPECT_FALSE(cell.used) << "handed out twice";
      for (const auto user : cell.streams) EXPECT_EQ(user, stream) << "a stream may still use it";
      cell.used = true;
      cell.streams = {stream};
    }
  }
  void freed(std::uint64_t address, std::uint64_t size, StreamHandle stream) {
    for (std::uint64_t at = address / 512; at < (address + size + 511) / 512; ++at) {
      auto& cell = cells_.at(at);
      cell.used = false;
      if (stream != StreamHandle{}) cell.streams.push_back(stream);
    }
  }
  void finished(const Unfinished& streams) {
    for (auto& [at, cell] : cells_) {
      if (cell.used) continue;
      std::erase_if(cell.streams, [&](StreamHandle user) {
        return (streams.count > 0 && user == streams.first) || (streams.count > 1 && user == streams.second);
      });
    }
  }
  void added(PoolBlocks::Slab slab) {
    for (std::uint64_t at = 0; at < slab.size / 512; ++at) cells_[slab.base.value / 512 + at] = {};
  }
  void removed(PoolBlocks::Slab slab) {
    for (std::uint64_t at = 0; at < slab.size / 512; ++at) {
      EXPECT_FALSE(cells_.at(slab.base.value / 512 + at).used);
      cells_.erase(slab.base.value / 512 + at);
    }
  }

 private:
  struct Cell {
    bool used = false;
    std::vector<StreamHandle> streams;
  };
  std::map<std::uint64_t, Cell> cells_;
};

TEST(PoolBlocks, HoldsAgainstAModelOverRandomSequences) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    PoolBlocks blocks(512);
    Model model;
    struct Live {
      PoolBlocks::Taken taken;
      std::uint64_t size;
    };
    std::vector<Live> live;
    std::uint64_t live_bytes = 0;
    std::uint64_t slabs = 0;
    for (int step = 0; step < 2000; ++step) {
      const StreamHandle stream{random.below(3)};
      const auto what = random.below(100);
      if (what < 50) {
        const auto size = random.log_uniform(1, 32_KiB);
        if (random.chance(0.1)) blocks.merge_for(stream);
        auto taken = blocks.take(size, stream);
        if (!taken) {
          const PoolBlocks::Slab slab{.base = {0x100000 + slabs++ * 0x20000}, .size = 64_KiB};
          blocks.add_slab(slab);
          model.added(slab);
          taken = blocks.take(size, stream);
        }
        ASSERT_TRUE(taken);
        model.took(taken->ptr.value, size, stream);
        live.push_back({*taken, size});
        live_bytes += size;
      } else if (what < 90 && !live.empty()) {
        const auto which = random.below(live.size());
        const auto ended = live[which];
        live[which] = live.back();
        live.pop_back();
        model.freed(ended.taken.ptr.value, ended.size, stream);
        blocks.release(ended.taken.cookie, stream);
        live_bytes -= ended.size;
      } else if (what < 95) {
        if (const auto parked = blocks.park_best(random.log_uniform(1, 64_KiB))) {
          const auto finished = random.chance(0.8);
          if (finished) model.finished(parked->streams);
          blocks.unpark(*parked, finished);
        }
      } else if (what < 97) {
        for (const auto& parked : blocks.park_all()) {
          model.finished(parked.streams);
          blocks.unpark(parked, true);
        }
      } else {
        if (const auto slab = blocks.remove_idle_slab(128_KiB)) model.removed(*slab);
      }
      ASSERT_EQ(blocks.live_bytes(), live_bytes);
    }
    blocks.release_all();
    for (const auto& ended : live) model.freed(ended.taken.ptr.value, ended.size, {});
    while (const auto slab = blocks.remove_idle_slab(0)) model.removed(*slab);
    EXPECT_EQ(blocks.reserved_bytes(), 0u);
    EXPECT_EQ(blocks.live_bytes(), 0u);
    EXPECT_EQ(blocks.largest_free_bytes(), 0u);
  }
}

}  // namespace
}  // namespace emm::test
