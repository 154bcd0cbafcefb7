// The known answers of peers' pools: what their own tests assert, and what their rules give.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "allocators/bfc.hpp"
#include "allocators/cupy.hpp"
#include "allocators/rmm_arena.hpp"
#include "allocators/rmm_binning.hpp"
#include "allocators/rmm_pool.hpp"

namespace emm::allocators {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
using Block = PoolModel::Block;
using Sizes = std::vector<std::uint64_t>;

/// A device that notes what it is asked for: what it refuses is noted as negative.
class Device final : public DeviceMemory {
 public:
  explicit Device(std::uint64_t capacity = 1024 * kGiB) : capacity_(capacity) {}

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    const bool has_room = held_ + round_up(size, 256) <= capacity_;
    asked.push_back(has_room ? static_cast<std::int64_t>(size) : -static_cast<std::int64_t>(size));
    if (!has_room) return std::nullopt;
    held_ += round_up(size, 256);
    next_ += 64 * kGiB;
    return next_;
  }
  void free(std::uint64_t, std::uint64_t size) override { held_ -= round_up(size, 256); }
  std::optional<std::uint64_t> reserve(std::uint64_t) override { return std::nullopt; }
  void release(std::uint64_t, std::uint64_t) override {}
  bool map(std::uint64_t, std::uint64_t, std::uint64_t) override { return false; }
  void unmap(std::uint64_t, std::uint64_t, std::uint64_t) override {}
  void order(std::uint64_t stream, std::uint64_t freed_on) override {
    orders.emplace_back(stream, freed_on);
  }

  std::vector<std::int64_t> asked;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> orders;

 private:
  std::uint64_t capacity_, held_ = 0, next_ = 0;
};

using Asked = std::vector<std::int64_t>;
const auto kRoom = [] { return PoolModel::Room{.free = 16 * kGiB, .total = 16 * kGiB}; };

// CuPy: its tests/cupy_tests/cuda_tests/test_memory.py. u is 512 bytes.
constexpr std::uint64_t kU = 512;

TEST(Cupy, RoundsUpTo512) {
  EXPECT_EQ(CupyPool::round_size(511), kU);
  EXPECT_EQ(CupyPool::round_size(512), kU);
  EXPECT_EQ(CupyPool::round_size(513), 2 * kU);
}

TEST(Cupy, SplitsAndMerges) {
  Device device;
  CupyPool pool({}, device);
  const auto whole = pool.allocate(4 * kU, 0);
  pool.free(*whole, 4 * kU, 0);
  const auto head = pool.allocate(2 * kU, 0), tail = pool.allocate(2 * kU, 0);

  EXPECT_EQ(head->address, whole->address);
  EXPECT_EQ(tail->address, whole->address + 2 * kU);

  pool.free(*head, 2 * kU, 0);
  pool.free(*tail, 2 * kU, 0);
  EXPECT_EQ(pool.allocate(4 * kU, 0)->address, whole->address);
  EXPECT_EQ(device.asked, Asked{4 * kU});
}

TEST(Cupy, AsksTheDeviceForWhatIsLarger) {
  Device device;
  CupyPool pool({}, device);
  pool.free(*pool.allocate(4 * kU, 0), 4 * kU, 0);

  EXPECT_TRUE(pool.allocate(8 * kU, 0));
  EXPECT_EQ(device.asked, (Asked{4 * kU, 8 * kU}));
}

TEST(Cupy, LimitRefusesAndFlushesFirst) {
  Device device;
  CupyPool pool({.limit = 6 * kU}, device);
  const auto five = pool.allocate(5 * kU, 0);
  ASSERT_TRUE(pool.allocate(kU, 0));
  EXPECT_FALSE(pool.allocate(kU, 0));

  CupyPool flushed({.limit = 6 * kU}, device);
  flushed.free(*flushed.allocate(5 * kU, 0), 5 * kU, 0);
  EXPECT_TRUE(flushed.allocate(6 * kU, 0));
  EXPECT_EQ(five->size, 5 * kU);
}

TEST(Cupy, NewerVersionsKeepIdleMemoryForARequestAboveTheLimit) {
  for (const bool older : {false, true}) {
    Device device;
    CupyPool pool({.limit = 6 * kU, .flushes_too_large = older}, device);
    pool.free(*pool.allocate(4 * kU, 0), 4 * kU, 0);

    EXPECT_FALSE(pool.allocate(7 * kU, 0));
    EXPECT_EQ(pool.counts().reserved, older ? 0 : 4 * kU);
  }
}

TEST(Cupy, ArenasOfStreamsDoNotLend) {
  Device device;
  CupyPool pool({}, device);
  const auto block = pool.allocate(4 * kU, 0);
  pool.free(*block, 4 * kU, 0);

  EXPECT_NE(pool.allocate(4 * kU, 7)->address, block->address);
}

TEST(Cupy, AFreeOnAnotherStreamGoesToTheArenaOfItsBirthAndIsWaitedFor) {
  Device device;
  CupyPool pool({}, device);
  const auto block = pool.allocate(4 * kU, 7);
  pool.free(*block, 4 * kU, 0);

  EXPECT_EQ(pool.allocate(4 * kU, 7)->address, block->address);
  EXPECT_EQ(device.orders, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{7, 0}}));
}

TEST(Cupy, FreeAllBlocksKeepsWhatIsSplit) {
  Device device;
  CupyPool pool({}, device);
  pool.free(*pool.allocate(4 * kU, 0), 4 * kU, 0);
  const auto head = pool.allocate(2 * kU, 0);
  pool.release_idle();

  EXPECT_EQ(pool.allocate(2 * kU, 0)->address, head->address + 2 * kU);
  EXPECT_EQ(pool.counts().device_frees, 0u);
}

TEST(Cupy, AsksThreeTimesWhereTheDeviceIsFull) {
  Device device(4 * kU);
  CupyPool pool({}, device);
  ASSERT_TRUE(pool.allocate(4 * kU, 0));

  EXPECT_FALSE(pool.allocate(kU, 0));
  EXPECT_EQ(device.asked, (Asked{2048, -512, -512, -512}));
}

// RMM: cpp/tests/mr/pool_mr_tests.cpp, and its rules.

TEST(RmmPool, ForceGrowthWithoutAMaximum) {
  Device device(6000);
  RmmPool pool({.initial_size = 0}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  EXPECT_TRUE(pool.allocate(1000, 0));
  EXPECT_TRUE(pool.allocate(4000, 0));
  EXPECT_TRUE(pool.allocate(500, 0));
  EXPECT_FALSE(pool.allocate(2000, 0));

  EXPECT_EQ(device.asked, (Asked{1024, 4096, -5120, -2560, -1280, 640, -5760, -2880, -2048}));
}

TEST(RmmPool, ForceGrowthToAMaximum) {
  Device device(6000);
  RmmPool pool({.initial_size = 0, .maximum_size = 8192}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  EXPECT_TRUE(pool.allocate(1000, 0));
  EXPECT_FALSE(pool.allocate(4000, 0));
  EXPECT_TRUE(pool.allocate(500, 0));
  EXPECT_TRUE(pool.allocate(2000, 0));

  EXPECT_EQ(device.asked, (Asked{4096, -4096}));
}

TEST(RmmPool, Doubles) {
  Device device;
  RmmPool pool({.initial_size = 0}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(pool.allocate(kMiB, 0));

  EXPECT_EQ(device.asked, (Asked{kMiB, kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB}));
}

TEST(RmmPool, TakesHalfOfWhatAMaximumLeaves) {
  Device device;
  RmmPool pool({.initial_size = 0, .maximum_size = 64 * kMiB}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(pool.allocate(kMiB, 0)) << i;

  EXPECT_EQ(device.asked, (Asked{32 * kMiB, 16 * kMiB, 8 * kMiB, 4 * kMiB, 2 * kMiB, kMiB, kMiB}));
  EXPECT_FALSE(pool.allocate(kMiB, 0));
}

TEST(RmmPool, TakesHalfOfWhatIsFreeAtTheBeginning) {
  Device device;
  RmmPool pool({}, device);
  ASSERT_TRUE(pool.begin([] { return PoolModel::Room{.free = 1000, .total = 2000}; }));

  EXPECT_EQ(device.asked, (Asked{256}));
}

TEST(RmmPool, LooksIntoOtherStreamsListsBeforeItGrows) {
  Device device;
  RmmPool pool({.initial_size = 0}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  const auto block = pool.allocate(kMiB, 1);
  pool.free(*block, kMiB, 1);

  EXPECT_EQ(pool.allocate(kKiB, 2)->address, block->address);
  EXPECT_EQ(device.orders, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 1}}));
  // The rest stays in the other stream's list.
  EXPECT_EQ(pool.allocate(kKiB, 1)->address, block->address + kKiB);
  EXPECT_EQ(device.orders.size(), 1u);
}

TEST(RmmPool, MergesOtherStreamsListsWhereNoneServes) {
  Device device;
  RmmPool pool({.initial_size = 2 * kMiB}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  const auto first = pool.allocate(kMiB, 1), second = pool.allocate(kMiB, 1);
  pool.free(*first, kMiB, 1);
  pool.free(*second, kMiB, 2);

  EXPECT_EQ(pool.allocate(2 * kMiB, 2)->address, first->address);
  EXPECT_EQ(device.asked.size(), 1u);
}

TEST(RmmBinning, EachBinTakes128BlocksWhenItIsMade) {
  Device device;
  RmmBinning binning({.over_pool = false}, device);
  ASSERT_TRUE(binning.begin(kRoom));

  EXPECT_EQ(device.asked, (Asked{32 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB}));
  EXPECT_EQ(binning.counts().reserved, 992 * kMiB);
}

TEST(RmmBinning, TheFirstBinThatIsLargeEnoughServesAndFreedBlocksComeLast) {
  Device device;
  RmmBinning binning({.over_pool = false}, device);
  ASSERT_TRUE(binning.begin(kRoom));
  const auto first = binning.allocate(1, 0), second = binning.allocate(256 * kKiB, 0);
  EXPECT_EQ(second->address, first->address + 256 * kKiB);
  EXPECT_EQ(binning.allocate(256 * kKiB + 1, 0)->size, 512 * kKiB);
  binning.free(*first, 1, 0);

  EXPECT_EQ(binning.allocate(1, 0)->address, first->address + 512 * kKiB);
  EXPECT_EQ(binning.allocate(5 * kMiB, 0)->size, 5 * kMiB);
}

// RMM: cpp/tests/mr/arena_mr_tests.cpp, on an arena of 4 MiB.

TEST(RmmArena, GivesFromTheFrontAndDefragmentsOnce) {
  Device device;
  RmmArena arena(4 * kMiB, device);
  ASSERT_TRUE(arena.begin(kRoom));
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(*arena.allocate(kMiB, 0));
  for (int i = 1; i < 4; ++i)
    EXPECT_EQ(blocks[i].address, blocks[0].address + static_cast<std::uint64_t>(i) * kMiB);
  EXPECT_FALSE(arena.allocate(kMiB, 0));
  for (const auto& block : blocks) arena.free(block, kMiB, 0);

  EXPECT_EQ(arena.allocate(4 * kMiB, 0)->address, blocks[0].address);
  EXPECT_EQ(device.asked, (Asked{4 * kMiB}));
}

TEST(RmmArena, ASuperblockServesByTheFirstFit) {
  Superblock superblock(0x1000, kMiB);
  EXPECT_EQ(superblock.take(kKiB), 0x1000u);
  EXPECT_EQ(superblock.take(2 * kKiB), 0x1000u + kKiB);
  superblock.release(0x1000, kKiB);
  EXPECT_EQ(superblock.take(512), 0x1000u);
}

TEST(RmmArena, ASmallRequestOfAnotherStreamHasASuperblockOfItsOwn) {
  Device device;
  RmmArena arena(4 * kMiB, device);
  ASSERT_TRUE(arena.begin(kRoom));
  const auto first = arena.allocate(256, 1), second = arena.allocate(256, 2);

  EXPECT_EQ(second->address, first->address + kMiB);
}

// BFC: xla/tsl/framework/bfc_allocator_test.cc, and its rules.

BfcPool growing(Device& device, std::uint64_t limit, bool collects = false) {
  BfcPool pool({.limit = limit, .preallocate = false, .garbage_collection = collects}, device);
  EXPECT_TRUE(pool.begin(kRoom));
  return pool;
}

TEST(Bfc, NoDups) {
  Device device;
  BfcPool pool({.limit = kGiB}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  std::uint64_t largest = 0;
  for (std::uint64_t size = 1; size < 1024; ++size)
    largest = std::max(largest, pool.allocate(size, 0)->size);

  EXPECT_EQ(pool.counts().active, 654'336u);
  EXPECT_EQ(largest, 1'024u);
}

TEST(Bfc, OneFloatIsAQuarterOfAKibibyte) {
  Device device;
  BfcPool pool({.limit = kGiB}, device);
  ASSERT_TRUE(pool.begin(kRoom));

  EXPECT_EQ(pool.allocate(4, 0)->size, 256u);
}

TEST(Bfc, RefusesAboveItsLimit) {
  Device device;
  auto pool = growing(device, 2 * kMiB);

  EXPECT_TRUE(pool.allocate(256, 0));
  EXPECT_FALSE(pool.allocate(8 * kMiB, 0));
}

TEST(Bfc, GrowsByDoubling) {
  Device device;
  auto pool = growing(device, 2 * kGiB);
  for (int i = 0; i < 128; ++i) ASSERT_TRUE(pool.allocate(4 * kMiB, 0));

  EXPECT_EQ(device.asked, (Asked{4 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 64 * kMiB,
                                 128 * kMiB, 256 * kMiB}));
}

TEST(Bfc, RegionsFitWhatIsAskedAndChunksAreSplitWhereTwiceTooLarge) {
  Device device;
  auto pool = growing(device, 8 * kGiB);
  Sizes given;
  for (const auto size : {100 * kMiB, 70 * kMiB, 60 * kMiB, 300 * kMiB})
    given.push_back(pool.allocate(size, 0)->size);

  EXPECT_EQ(device.asked, (Asked{128 * kMiB, 128 * kMiB, 256 * kMiB, 512 * kMiB}));
  EXPECT_EQ(given, (Sizes{128 * kMiB, 128 * kMiB, 60 * kMiB, 300 * kMiB}));
}

// ONNX Runtime's arena: onnxruntime/core/framework/bfc_arena.cc, and its defaults.

BfcPool arena(Device& device, BfcSettings settings) {
  settings.limit = settings.limit.value_or(~std::uint64_t{0} >> 1);
  settings.preallocate = false;
  BfcPool pool(settings, device);
  EXPECT_TRUE(pool.begin(kRoom));
  return pool;
}

TEST(Bfc, AsOnnxRuntimesArenaGrowsFromItsFirstChunkToItsLargest) {
  Device device;
  auto pool = arena(device, {.first_region = kMiB, .largest_doubled = 16 * kMiB});
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(pool.allocate(4 * kMiB, 0));

  EXPECT_EQ(device.asked, (Asked{4 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 16 * kMiB, 16 * kMiB}));
}

TEST(Bfc, AsOnnxRuntimesArenaGrowsByWhatIsAskedWhereItIsToldSo) {
  Device device;
  auto pool = arena(device, {.grows_as_asked = true});
  for (const auto size : {kMiB, 100 * kMiB, std::uint64_t{300}})
    ASSERT_TRUE(pool.allocate(size, 0));

  EXPECT_EQ(device.asked, (Asked{kMiB, 100 * kMiB, 512}));
}

TEST(Bfc, AsOnnxRuntimesArenaSplitsWhereMoreBytesThanTheDeadWouldBeLeft) {
  Device device;
  auto pool = arena(device, {.dead_bytes = 10 * kMiB, .grows_as_asked = true});
  const auto first = pool.allocate(100 * kMiB, 0);
  pool.free(*first, 100 * kMiB, 0);

  EXPECT_EQ(pool.allocate(80 * kMiB, 0)->size, 80 * kMiB);  // 20 MiB would be dead

  Device other;
  auto wasteful = arena(other, {.dead_bytes = 30 * kMiB, .grows_as_asked = true});
  const auto block = wasteful.allocate(100 * kMiB, 0);
  wasteful.free(*block, 100 * kMiB, 0);
  EXPECT_EQ(wasteful.allocate(80 * kMiB, 0)->size, 100 * kMiB);
}

TEST(Bfc, CollectsFreeRegionsWhereThatMakesRoom) {
  Device device;
  auto pool = growing(device, 512 * kMiB, true);
  std::vector<Block> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(*pool.allocate(4 * kMiB, 0));
  for (int i = 0; i < 127; ++i) pool.free(blocks[static_cast<std::size_t>(i)], 4 * kMiB, 0);

  EXPECT_FALSE(pool.allocate(508 * kMiB, 0)) << "one region is in use";
}

TEST(Bfc, EndsWhereTheDeviceAlwaysRefuses) {
  Device device(0);
  BfcPool pool({.limit = 2048}, device);
  ASSERT_TRUE(pool.begin(kRoom));

  EXPECT_FALSE(pool.allocate(1, 0));
  EXPECT_GE(device.asked.size(), 2u);
}

TEST(Bfc, WaitsForStreamsThatFreed) {
  Device device;
  BfcPool pool({.limit = kGiB}, device);
  ASSERT_TRUE(pool.begin(kRoom));
  const auto block = pool.allocate(kMiB, 1);
  pool.free(*block, kMiB, 1);
  EXPECT_EQ(pool.allocate(kMiB, 2)->address, block->address);
  ASSERT_TRUE(pool.allocate(kMiB, 2));

  EXPECT_EQ(device.orders, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 1}}));
}

}  // namespace
}  // namespace emm::allocators
