// Whom the pool refuses, and whom it must not: what could be served is served.
#include <algorithm>
#include <vector>

#include "base/prng.hpp"
#include "driver/call.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_most.hpp"
#include "pool_rig.hpp"
#include "pool_sound.hpp"

namespace emm::test {
namespace {

class PoolRefusals : public PoolOverVirtualMemory {
 protected:
  void every(Call call, std::int32_t native) {
    hook.faults.emplace(FaultPlan{.call = call, .native = native, .rate = 1});
  }
  /// Fills 16,384 granules of 512 bytes. Five free blocks of 64 granules stay, and one of `last` at
  /// the end or among the blocks in use.
  void free_blocks_of_nearly_one_size(std::uint64_t last, bool at_the_end) {
    std::vector<MemoryPointer> free_blocks;
    const auto free_block = [&](std::uint64_t granules) {
      free_blocks.push_back(memory(granules * 512));
      kept.push_back(memory(100 * 512));
    };
    if (!at_the_end) free_block(last);
    for (int i = 0; i < 5; ++i) free_block(64);
    const auto used = 5 * (64 + 100) + last + (at_the_end ? 0u : 100u);
    kept.push_back(memory((16'384 - used) * 512));
    for (auto& memory : free_blocks) memory = {};
  }
  std::vector<MemoryPointer> kept;
};

TEST_F(PoolRefusals, AFreeBlockBehindOthersOfNearlyItsSizeIsFound) {
  for (const auto* spec :
       {"pool:initial=8MiB,max=8MiB", "pool:initial=8MiB,max=8MiB,backing=cumem"}) {
    for (const bool at_the_end : {true, false}) {
      SCOPED_TRACE(std::string(spec) + (at_the_end ? ", at the end" : ", in the midst"));
      kept.clear();
      make(spec);
      free_blocks_of_nearly_one_size(65, at_the_end);
      const auto found = memory(65 * 512);
      EXPECT_TRUE(found.alive() && found.device_pointer() != DevicePtr{});
      EXPECT_EQ(manager->state().live_bytes, manager->statistics().requested_bytes.current);
      EXPECT_EQ(manager->statistics().allocation.current, kept.size() + 1);
    }
  }
}

TEST_F(PoolRefusals, WhatTheDriverCouldNotMapOnceIsTriedAgain) {
  for (const auto call : {Call::mem_address_reserve, Call::mem_map, Call::mem_set_access}) {
    kept.clear();
    make("pool:max=64MiB");
    for (int i = 0; i < 64; ++i) kept.push_back(memory(1_MiB));
    for (const auto i : {1u, 2u, 3u, 6u, 7u, 8u}) kept[i] = {};  // each half a piece, and a whole
    every(call, 2);
    const auto refused = manager->memalloc(6_MiB);
    hook.faults.reset();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_TRUE(manager->memalloc(6_MiB)) << "nothing is freed, and the driver has come to itself";
  }
}

TEST_F(PoolRefusals, IdleMemoryThatCouldNotGoBackOnceIsTriedAgain) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    const bool waits = spec != std::string("pool:max=64MiB");
    SCOPED_TRACE(spec);
    make(spec);
    const auto own = memory(16_MiB);
    const auto other = *driver().stream_create(StreamKind::non_blocking);
    ASSERT_TRUE(memory(48_MiB).free(waits ? other : StreamHandle{}));
    every(Call::ctx_synchronize, 900);  // as while a stream is captured
    const auto refused = manager->memalloc(32_MiB, other);
    hook.faults.reset();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_TRUE(manager->memalloc(32_MiB, other));
  }
}

TEST_F(PoolRefusals, WhereMemoryMayBeMappedStillNothingElseIsEverMapped) {
  make("pool");
  auto first = memory(100_MiB);
  auto second = memory(100_MiB);
  auto third = memory(100_MiB);
  third = {};
  every(Call::mem_unmap, 1);
  EXPECT_FALSE(manager->trim(0));
  hook.faults.reset();
  second = {};
  ASSERT_TRUE(manager->trim(0));
  EXPECT_TRUE(manager->memalloc(150_MiB));
}

TEST_F(PoolRefusals, NothingIsHandedOutBeyondASlabThatMaxCutsShort) {
  for (const auto* spec : {"pool:max=3MiB,backing=cumem,alignment=2MiB",
                           "pool:initial=3MiB,max=3MiB,backing=cumem,alignment=2MiB",
                           "pool:max=2000100,backing=cumem"}) {
    SCOPED_TRACE(spec);
    kept.clear();
    make(spec);
    while (auto more = manager->memalloc(512)) {
      kept.push_back(*std::move(more));
      fill(kept.back(), 3);
    }
    ASSERT_FALSE(kept.empty());
    EXPECT_LE(*manager->statistics().allocated_bytes.current, driver().held_bytes());
    kept.clear();
    ASSERT_TRUE(manager->trim(0));
    EXPECT_EQ(driver().held_bytes(), 0u);
  }
}

// cuMemAlloc gives up to 1 MiB at any 512 bytes of a page that others share.
TEST_F(PoolRefusals, NothingIsHandedOutThatIsNotAligned) {
  struct Case {
    std::string max;
    std::uint64_t alignment;
    std::size_t served;
  };
  for (const auto& [max, alignment, served] :
       {Case{"1MiB", 1_MiB, 0}, Case{"3MiB", 1_MiB, 2}, Case{"64KiB", 1_KiB, 0},
        Case{"1537KiB", 512_KiB, 3}, Case{"4KiB", 512, 8}}) {
    SCOPED_TRACE(max);
    kept.clear();
    make("pool:backing=cumem,max=" + max + ",alignment=" + std::to_string(alignment));
    const auto others = driver().mem_alloc(512);
    while (auto more = manager->memalloc(1)) kept.push_back(*std::move(more));
    EXPECT_EQ(kept.size(), served);
    for (const auto& memory : kept) EXPECT_EQ(memory.device_pointer().value % alignment, 0u);
    EXPECT_TRUE(others);
  }
}

TEST_F(PoolRefusals, OneFreeBlockGivesBothEndsOfWhatIsMappedAsOneWhereMemoryHasRunOut) {
  for (const std::size_t whole : {0u, 2u}) {  // pieces in the midst of that free block
    SCOPED_TRACE(whole);
    make("pool:max=16MiB");
    const auto guard = manager->defer_cleanup();
    const auto size = (4 + 2 * whole) * 1_MiB;
    DevicePtr where{};
    for (int generation = 0; generation < 3; ++generation) {
      for (int i = 0; i < 16; ++i) kept.push_back(memory(1_MiB));  // in pieces of 2
      const auto start = kept[1].device_pointer().value;
      kept.erase(kept.begin() + 12, kept.begin() + 14);  // a piece
      kept.erase(kept.begin() + 1, kept.begin() + 3 + 2 * static_cast<std::ptrdiff_t>(whole));
      EXPECT_FALSE(manager->memalloc(size + 1));
      const auto all = memory(size);
      if (generation == 0) where = all.device_pointer();
      EXPECT_EQ(all.device_pointer(), where);
      fill(all, 7);
      std::map<std::uint64_t, std::uint64_t> live{{all.device_pointer().value, size}};
      for (const auto& other : kept) {
        fill(other, 3);
        live[other.device_pointer().value] = 1_MiB;
      }
      expect_filled(all, 7);
      expect_sound(*manager, live);
      const auto parts = manager->memory_map()->stitched_blocks.at(0).parts;
      EXPECT_EQ(parts.front().address, start);
      EXPECT_EQ(parts.back().address, start + size - 3_MiB);
      EXPECT_EQ(*manager->statistics().times_aliased, 3 + whole);
      kept.clear();
    }
  }
}

TEST_F(PoolRefusals, ASlabOfLessThanAPageGoesBackToo) {
  make("pool:max=2560KiB,backing=cumem");
  const auto in_use = memory(2_MiB);
  memory(512_KiB);
  ASSERT_TRUE(manager->trim(0));
  EXPECT_EQ(driver().held_bytes(), 2_MiB);
}

TEST_F(PoolRefusals, AsMuchAsThereIsIsServedWhateverCameBefore) {
  int exact = 0;
  for (const std::string backing : {"vmm", "cumem"}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(backing + ", seed " + std::to_string(seed));
      Prng random(seed);
      const auto max = (random.below(40) + 24) * 2_MiB;
      make("pool:max=" + std::to_string(max) + ",backing=" + backing);
      const std::array streams{StreamHandle{}, *driver().stream_create(StreamKind::non_blocking),
                               *driver().stream_create(StreamKind::blocking)};
      const auto used = 1 + seed % 3;
      std::vector<MemoryPointer> pieces;
      std::optional<DeferCleanup> guard;
      for (int step = 0; step < 600; ++step) {
        const auto stream = streams[random.below(used)];
        if (pieces.empty() || random.chance(0.5)) {
          auto made = manager->memalloc(random.log_uniform(512, max / 4), stream);
          if (made) pieces.push_back(*std::move(made));
        } else {
          std::swap(pieces[random.below(pieces.size())], pieces.back());
          ASSERT_TRUE(pieces.back().free(random.chance(0.8) ? StreamHandle{} : stream));
          pieces.pop_back();
        }
        if (random.chance(0.01)) {
          ASSERT_TRUE(manager->trim(random.below(max)));
        }
        if (random.chance(0.003)) {
          manager->reset();
          pieces.clear();
        }
        if (random.chance(0.02)) guard.emplace(manager->defer_cleanup());
        if (random.chance(0.05)) guard.reset();
        if (step % 3 != 0) continue;
        const auto map = *manager->memory_map();
        const auto room = max - *manager->statistics().reserved_bytes.current;
        const auto most = most_to_be_had(map, stream, room, backing == "vmm", !guard);
        if (most == 0) continue;
        if (random.chance(0.5)) {
          const auto more = manager->memalloc(most + 512 + random.below(4_MiB), stream);
          ASSERT_FALSE(more) << "step " << step << ": more than " << most << " bytes";
          EXPECT_EQ(more.error().code, Errc::out_of_memory);
        }
        auto all = manager->memalloc(most, stream);
        ASSERT_TRUE(all) << "step " << step << ": " << most << " bytes, room " << room;
        ++exact;
        if (random.chance(0.2)) pieces.push_back(*std::move(all));
      }
      guard.reset();
    }
  }
  EXPECT_GT(exact, 500);
}

// Nobody says when another process has released memory, so each request asks the driver anew.
TEST_F(PoolRefusals, WhatOthersHeldOfTheDeviceIsHadOnceTheyAreGone) {
  for (const std::string spec : {"pool:backing=vmm", "pool:backing=cumem", "pool:max=480MiB"}) {
    const auto max = spec == "pool:max=480MiB" ? 480_MiB : 512_MiB;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(spec + ", seed " + std::to_string(seed));
      on_another_device();
      make(spec);
      const auto stream = *driver().stream_create(StreamKind::non_blocking);
      Prng random(seed);
      std::vector<MemoryPointer> pieces;
      for (int round = 0; round < 20; ++round) {
        while (pieces.size() < 12) {
          auto made = manager->memalloc(random.log_uniform(1_MiB, 32_MiB),
                                        random.chance(0.3) ? stream : StreamHandle{});
          if (!made) break;
          pieces.push_back(*std::move(made));
        }
        for (auto i = random.below(12); i > 0 && !pieces.empty(); --i) {
          std::swap(pieces[random.below(pieces.size())], pieces.back());
          pieces.pop_back();
        }
        const auto others = driver().mem_get_info()->free / 2_MiB * 2_MiB;
        const auto other = others > 0 ? driver().mem_alloc(others) : Result<DevicePtr>(DevicePtr{});
        ASSERT_TRUE(other);
        const auto map = *manager->memory_map();
        const bool maps = spec != "pool:backing=cumem";
        const auto here = most_to_be_had(map, {}, 0, maps, true);
        const auto reserved = *manager->statistics().reserved_bytes.current;
        const auto room = std::min(others, max - std::min(max, reserved));
        const auto more = std::max(here, most_to_be_had(map, {}, room, maps, true));
        const auto size = std::min<std::uint64_t>(more, 300_MiB);
        if (size > here) {
          for (int i = 0; i < 2; ++i) {
            const auto refused = manager->memalloc(size);
            ASSERT_FALSE(refused) << "round " << round;
            ASSERT_EQ(refused.error().code, Errc::out_of_memory);
          }
        }
        if (others > 0) {
          ASSERT_TRUE(driver().mem_free(*other));
        }
        ASSERT_TRUE(manager->memalloc(size)) << "round " << round << ": " << size << ", " << others;
      }
    }
  }
}

}  // namespace
}  // namespace emm::test
