// What the pool says of itself: its statistics, and the map of its memory.
#include <algorithm>
#include <map>
#include <vector>

#include "base/prng.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"
#include "pool_sound.hpp"

namespace emm::test {
namespace {

using State = MemoryMap::State;
using PoolMap = PoolOverVirtualMemory;

TEST_F(PoolMap, IsTiledAndAddsUpWhateverTheProgramDoes) {
  std::size_t stitched = 0, waiting = 0, streams_seen = 0;
  for (const auto* spec : {"pool:max=200MiB", "pool:max=200MiB,backing=cumem",
                           "pool:max=200MiB,release_threshold=64MiB"}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::string(spec) + ", seed " + std::to_string(seed));
      make(spec);
      const std::array streams{StreamHandle{}, *driver().stream_create(StreamKind::non_blocking),
                               *driver().stream_create(StreamKind::blocking)};
      Prng random(seed);
      std::vector<MemoryPointer> pieces;
      for (int step = 0; step < 600; ++step) {
        const auto stream = streams[random.chance(0.8) ? 0 : random.below(streams.size())];
        if (pieces.empty() || random.chance(0.52)) {
          auto made = manager->memalloc(random.log_uniform(1, 48_MiB), stream);
          if (made) pieces.push_back(*std::move(made));
        } else {
          std::swap(pieces[random.below(pieces.size())], pieces.back());
          ASSERT_TRUE(pieces.back().free(stream));
          pieces.pop_back();
        }
        if (step % 200 == 150) {
          ASSERT_TRUE(manager->trim(64_MiB));
        }
        if (step % 250 == 249) {
          const auto deferred = manager->defer_cleanup();
          manager->reset();
          pieces.clear();
        }
        if (step % 20 != 19) continue;
        std::map<std::uint64_t, std::uint64_t> live;
        for (const auto& piece : pieces) live[piece.device_pointer().value] = piece.size();
        ASSERT_NO_FATAL_FAILURE(expect_sound(*manager, live));
        EXPECT_EQ(manager->statistics().reserved_bytes.current, driver().held_bytes());
        const auto map = *manager->memory_map();
        stitched += map.stitched_blocks.size();
        for (const auto& segment : map.segments) {
          streams_seen += segment.stream != StreamHandle{} ? 1 : 0;
          for (const auto& block : segment.blocks)
            waiting += block.state == State::active_awaiting_free ? 1 : 0;
        }
      }
      pieces.clear();
      manager->reset();
      ASSERT_NO_FATAL_FAILURE(expect_sound(*manager, {}));
      EXPECT_EQ(manager->memory_map()->segments.size(), 0u);
    }
  }
  EXPECT_GT(stitched, 20u);
  EXPECT_GT(waiting, 20u);
  EXPECT_GT(streams_seen, 20u);
}

// A generation replays what the one before it stitched, but asks for a little else, frees on
// another stream, trims, is reset, or meets a driver that fails.
TEST_F(PoolMap, IsSoundInGenerationsThatAreNearlyAlike) {
  std::size_t stitched = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    on_another_device();
    make("pool:max=" + std::to_string(100 + 20 * (seed % 10)) + "MiB");
    const std::array streams{*driver().stream_create(StreamKind::non_blocking),
                             *driver().stream_create(StreamKind::non_blocking)};
    for (std::uint64_t generation = 0; generation < 10; ++generation) {
      Prng random(seed);
      Prng changes(seed * 100 + generation);
      std::vector<MemoryPointer> pieces;
      std::optional<DeferCleanup> guard;
      for (int step = 0; step < 300; ++step) {
        const bool allocates = pieces.size() < 3 || random.chance(0.5);
        const auto size = random.log_uniform(256_KiB, 32_MiB);
        const auto which = random.below(1000);
        const auto changed = generation > 1 && changes.chance(0.02) ? 1 + changes.below(7) : 0;
        const auto stream = streams[seed % 4 == 0 && random.chance(0.2) ? 1 : 0];
        if (changed == 1) (void)manager->trim(changes.below(100) * 1_MiB);
        if (changed == 2 && changes.chance(0.3)) {
          manager->reset();
          pieces.clear();
        }
        if (changed == 3) guard.emplace(manager->defer_cleanup());
        if (changed == 4) guard.reset();
        if (changed == 5)
          hook.faults.emplace(FaultPlan{.call = {}, .rate = 0.3, .seed = generation});
        if (allocates) {
          auto made = manager->memalloc(changed == 6 ? size / 2 : size, stream);
          if (made) {
            EXPECT_TRUE(made->device_pointer() != DevicePtr{});
            pieces.push_back(*std::move(made));
          }
        } else if (!pieces.empty()) {
          std::swap(pieces[which % pieces.size()], pieces.back());
          ASSERT_TRUE(pieces.back().free(changed == 7 ? streams[1] : streams[0]));
          pieces.pop_back();
        }
        hook.faults.reset();
        if (step % 10 != 0) continue;
        std::map<std::uint64_t, std::uint64_t> live;
        for (const auto& piece : pieces) live[piece.device_pointer().value] = piece.size();
        ASSERT_NO_FATAL_FAILURE(expect_sound(*manager, live));
        stitched += manager->memory_map()->stitched_blocks.size();
      }
    }
  }
  EXPECT_GT(stitched, 100u);
}

void expect(const MemoryStatistics::Count& count, std::uint64_t current, std::uint64_t peak,
            std::uint64_t total) {
  EXPECT_EQ(count.current, current);
  EXPECT_EQ(count.peak, peak);
  EXPECT_EQ(count.allocated, total);
  EXPECT_EQ(count.freed, total - current);
}

TEST_F(PoolMap, CountsPeaksAndTotalsAsTheyCame) {
  make("pool");
  const auto own = *driver().stream_create(StreamKind::non_blocking);
  const auto other = *driver().stream_create(StreamKind::non_blocking);
  auto first = memory(1000, own);
  auto second = memory(3000, own);
  ASSERT_TRUE(first.free(other));  // waits: 1024 bytes
  const auto third = memory(512, own);
  ASSERT_TRUE(second.free(own));
  const auto fourth = memory(600, own);

  const auto of = manager->statistics();
  expect(of.requested_bytes, 1112, 4000, 5112);
  expect(of.allocated_bytes, 1536, 4096, 5632);
  expect(of.active_bytes, 2560, 4608, 5632);
  expect(of.allocation, 2, 2, 4);
  expect(of.active, 3, 3, 4);
  expect(of.reserved_bytes, 2_MiB, 2_MiB, 2_MiB);
  EXPECT_EQ(of.inactive_split_bytes.current, 2_MiB - 2560);
  EXPECT_EQ(of.num_device_alloc, 1u);
  expect(of.segment, 1, 1, 1);
}

TEST_F(PoolMap, CountsWhatIsFreeBesideWhatIsUsedAtEachRequestWhereItIsTo) {
  make("pool:inactive_split=peak");
  auto first = memory(512);
  auto second = memory(1_MiB);
  ASSERT_TRUE(first.free());  // and is kept whole, beside what is used
  auto third = memory(1_MiB - 512);
  ASSERT_TRUE(second.free());  // which makes one of it and of the first
  ASSERT_TRUE(third.free());   // all of the page is free, and could go back

  const auto of = manager->statistics();
  expect(of.inactive_split_bytes, 0, 2_MiB - 512, (2_MiB - 512) + 512 + 1_MiB);
  expect(of.inactive_split, 0, 2, 2);
  EXPECT_EQ(of.allocation.allocated, 3u);

  make("pool");
  const auto alone = memory(512);
  EXPECT_EQ(manager->statistics().inactive_split_bytes.current, 2_MiB - 512);
  EXPECT_EQ(manager->statistics().inactive_split_bytes.peak, std::nullopt);
}

// Uses one stream, as several have their peaks each at its own time. An operation that makes room
// or resets changes the figure more than once, and by no less than can be seen afterwards.
TEST_F(PoolMap, CountsEachChangeOfWhatIsFreeBesideWhatIsUsed) {
  std::uint64_t waiting = 0;
  for (const std::string limits : {"", ",max=200MiB", ",max=200MiB,release_threshold=64MiB"}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const auto spec = (seed % 2 == 0 ? "pool:backing=cumem" : "pool:backing=vmm") + limits;
      SCOPED_TRACE(spec + ", seed " + std::to_string(seed));
      make(spec + ",inactive_split=peak");
      const auto own = *driver().stream_create(StreamKind::non_blocking);
      const auto other = *driver().stream_create(StreamKind::non_blocking);
      struct Seen {
        std::uint64_t current = 0, peak = 0, total = 0;
        void set(std::uint64_t n) {
          total += n > current ? n - current : 0;
          current = n;
          peak = std::max(peak, n);
        }
        bool operator==(const Seen&) const = default;
      } bytes, blocks;
      Prng random(seed);
      std::vector<MemoryPointer> pieces;
      std::optional<DeferCleanup> guard;
      for (int step = 0; step < 500; ++step) {
        if (random.chance(0.05)) {
          ASSERT_TRUE(manager->trim(random.below(128) * 1_MiB));
        } else if (!limits.empty() && random.chance(0.01)) {
          manager->reset();
          pieces.clear();
        } else if (random.chance(0.05)) {
          guard.emplace(manager->defer_cleanup());
        } else if (random.chance(0.1)) {
          guard.reset();
        } else if (pieces.empty() || random.chance(0.55)) {
          auto made = manager->memalloc(random.log_uniform(1, 24_MiB), own);
          if (made) pieces.push_back(*std::move(made));
        } else {
          std::swap(pieces[random.below(pieces.size())], pieces.back());
          ASSERT_TRUE(pieces.back().free(random.chance(0.4) ? other : own));
          pieces.pop_back();
        }
        Seen now_bytes, now_blocks;
        const auto map = *manager->memory_map();
        for (const auto& segment : map.segments) {
          const auto [split, count] = inactive_split(segment);
          now_bytes.current += split;
          now_blocks.current += count;
          for (const auto& block : segment.blocks)
            waiting += block.state == State::active_awaiting_free ? 1 : 0;
        }
        bytes.set(now_bytes.current);
        blocks.set(now_blocks.current);
      }
      const auto of = manager->statistics();
      const auto told = [](const MemoryStatistics::Count& count) {
        return Seen{*count.current, *count.peak, *count.allocated};
      };
      EXPECT_EQ(told(of.inactive_split_bytes).current, bytes.current);
      EXPECT_EQ(told(of.inactive_split).current, blocks.current);
      if (limits.empty()) {
        EXPECT_EQ(told(of.inactive_split_bytes), bytes);
        EXPECT_EQ(told(of.inactive_split), blocks);
      }
      EXPECT_GE(told(of.inactive_split_bytes).peak, bytes.peak);
      EXPECT_GE(told(of.inactive_split_bytes).total, bytes.total);
      EXPECT_GE(told(of.inactive_split).peak, blocks.peak);
      EXPECT_GE(told(of.inactive_split).total, blocks.total);
      guard.reset();
    }
  }
  EXPECT_GT(waiting, 100u);
}

TEST_F(PoolMap, CountsSegmentsThatCameAndWent) {
  make("pool:backing=cumem");
  for (int time = 0; time < 2; ++time) {
    auto small = memory(2_MiB);
    auto large = memory(40_MiB);
    small = {};
    large = {};
    ASSERT_TRUE(manager->trim(0));
  }
  const auto of = manager->statistics().segment;
  EXPECT_EQ(of.current, 0u);
  EXPECT_EQ(of.peak, 2u);
  EXPECT_EQ(of.allocated, 4u);
  EXPECT_EQ(of.freed, 4u);
}

TEST_F(PoolMap, CountsRefusalsAndTheMemoryReleasedForARequest) {
  make("pool:max=8MiB");
  const auto stream = *driver().stream_create(StreamKind::non_blocking);
  { const auto idle = memory(8_MiB, stream); }
  const auto moved = memory(6_MiB);
  EXPECT_EQ(manager->memalloc(4_MiB).error().code, Errc::out_of_memory);

  const auto of = manager->statistics();
  EXPECT_EQ(of.num_alloc_retries, 1u);
  EXPECT_EQ(of.num_ooms, 1u);
  EXPECT_GT(*of.num_device_free, 0u);
}

TEST_F(PoolMap, KnowsTheLargestPieceThatNeedsNoDriver) {
  for (const auto* spec : {"pool", "pool:backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    { const auto piece = memory(10_MiB); }
    const auto largest = *manager->statistics().largest_free_bytes;
    EXPECT_GE(largest, 10_MiB);
    hook.calls = 0;
    const auto all_of_it = memory(largest);
    EXPECT_EQ(hook.calls, 0);
    EXPECT_EQ(manager->statistics().largest_free_bytes, 0u);
  }
}

TEST_F(PoolMap, CountsItsOwnMemoryByTheBlock) {
  make("pool");
  std::vector<MemoryPointer> pieces;
  for (int i = 0; i < 10'000; ++i) pieces.push_back(memory(512));

  const auto of = manager->statistics();
  EXPECT_GE(*of.metadata_bytes, 32u * 10'000);
  EXPECT_GE(*of.metadata_bytes_per_block, 32u);
  EXPECT_LE(*of.metadata_bytes_per_block, 80u) << "32 bytes a block, in a vector that doubles";
}

TEST_F(PoolMap, PeaksBeginAgainAndAreNotKnownOfTwoStreams) {
  make("pool");
  const auto kept = memory(1_MiB);
  ASSERT_TRUE(memory(4_MiB).free());
  const auto peak = [&] { return manager->statistics().requested_bytes.peak; };
  EXPECT_EQ(peak(), 5_MiB);
  ASSERT_TRUE(manager->reset_peaks());
  EXPECT_EQ(peak(), 1_MiB);
  EXPECT_EQ(manager->statistics().reserved_bytes.peak, driver().held_bytes());

  const auto stream = *driver().stream_create(StreamKind::non_blocking);
  auto other = *manager->memalloc(2_MiB, stream);
  EXPECT_EQ(peak(), std::nullopt) << "each stream's is at a time of its own";
  ASSERT_TRUE(other.free(stream));
  ASSERT_TRUE(driver().ctx_synchronize());
  ASSERT_TRUE(manager->reset_peaks());
  EXPECT_EQ(peak(), 1_MiB) << "the other stream has had nothing since";
}

TEST(MemoryStatistics, HaveTheNamesOfPyTorchAndOfRmm) {
  const MemoryStatistics of{.allocation = {.current = 1, .peak = 2, .allocated = 3, .freed = 2},
                            .requested_bytes = {.current = 10, .peak = 20, .allocated = 30},
                            .num_ooms = 4,
                            .metadata_bytes = 5};
  EXPECT_EQ(torch_statistics(of), (NamedStatistics{{"allocation.all.current", 1},
                                                   {"allocation.all.peak", 2},
                                                   {"allocation.all.allocated", 3},
                                                   {"allocation.all.freed", 2},
                                                   {"requested_bytes.all.current", 10},
                                                   {"requested_bytes.all.peak", 20},
                                                   {"requested_bytes.all.allocated", 30},
                                                   {"num_ooms", 4}}));
  EXPECT_EQ(rmm_statistics(of), (NamedStatistics{{"current_bytes", 10},
                                                 {"current_count", 1},
                                                 {"peak_bytes", 20},
                                                 {"peak_count", 2},
                                                 {"total_bytes", 30},
                                                 {"total_count", 3}}));
  EXPECT_EQ(other_statistics(of), (NamedStatistics{{"metadata_bytes", 5}}));
}

}  // namespace
}  // namespace emm::test
