// Order and room that the pool lacks.
#include <algorithm>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace emm::test {
namespace {

class PoolOrder : public PoolOverVirtualMemory {
 protected:
  /// Leaves 4 MiB of stream `one` in use beside 96 MiB that were freed on stream `two` and wait for
  /// it.
  void waiting() {
    auto freed_elsewhere = memory(96_MiB, one = stream());
    kept = memory(4_MiB, one);
    ASSERT_TRUE(freed_elsewhere.free(two = stream()));
  }
  StreamHandle stream() { return *driver().stream_create(StreamKind::non_blocking); }

  StreamHandle one, two;
  MemoryPointer kept;
};

TEST_F(PoolOrder, MemoryThatWaitsInAnArenaInUseMakesRoomForAnotherStream) {
  for (const auto* spec : {"pool:max=128MiB", "pool:max=128MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    kept = {};  // before its manager
    make(spec);
    waiting();
    EXPECT_TRUE(manager->memalloc(96_MiB, two)) << "the stream that freed it asks";
  }
}

TEST_F(PoolOrder, TrimReleasesWhatWaitsInAnArenaInUse) {
  for (const auto* spec : {"pool", "pool:backing=cumem"}) {
    SCOPED_TRACE(spec);
    kept = {};  // before its manager
    make(spec);
    waiting();
    ASSERT_TRUE(manager->trim(0));
    EXPECT_LE(driver().held_bytes(), 16_MiB);
  }
}

TEST_F(PoolOrder, WhatWaitsKeepsNothingElseFromGoingBackBeyondTheThreshold) {
  make("pool:release_threshold=16MiB");
  const auto in_use = memory(512);
  auto freed_elsewhere = memory(512);
  auto idle = memory(200_MiB);
  ASSERT_TRUE(freed_elsewhere.free(stream()));
  ASSERT_TRUE(idle.free());
  EXPECT_LE(driver().held_bytes(), 16_MiB);
}

TEST_F(PoolOrder, ThePerThreadStreamOfAnotherThreadIsAnotherStream) {
  make("pool");
  auto handed_over = memory(4_MiB, kPerThreadStream);
  hook.of_streams = 0;
  std::thread([&] { EXPECT_TRUE(handed_over.free(kPerThreadStream)); }).join();
  const auto first = memory(4_MiB, kPerThreadStream);
  const auto second = memory(4_MiB, kPerThreadStream);
  EXPECT_EQ(hook.of_streams, 2) << "recorded at the free, and waited for before it is used again";
}

TEST_F(PoolOrder, NobodyAsksForAnothersPerThreadStream) {
  make("pool:release_threshold=2MiB");
  const auto in_use = memory(8_MiB);
  bool pending = false, alone = false;
  std::thread other([&] {
    ASSERT_TRUE(driver().ctx_push_current());
    auto worked_on = memory(32_MiB, kPerThreadStream);
    ASSERT_TRUE(driver().memset_d8_async(worked_on.device_pointer(), 3, 32_MiB, kPerThreadStream));
    ASSERT_TRUE(worked_on.free(kPerThreadStream));
    pending = driver().held_bytes() >= 40_MiB;
    std::thread([&] { memory(512); }).join();
    alone = driver().stream_synchronize(kPerThreadStream).has_value();
  });
  other.join();
  EXPECT_TRUE(pending);
  EXPECT_TRUE(alone) << "nothing is unmapped while its work runs";
}

// The variables of the next thread lie where those of the ended thread lay.
TEST_F(PoolOrder, NobodyAsksForThePerThreadStreamOfAThreadThatHasEnded) {
  make("pool:release_threshold=2MiB");
  const auto in_use = memory(8_MiB);
  std::thread([&] {
    ASSERT_TRUE(driver().ctx_push_current());
    auto worked_on = memory(32_MiB, kPerThreadStream);
    ASSERT_TRUE(driver().memset_d8_async(worked_on.device_pointer(), 3, 32_MiB, kPerThreadStream));
    ASSERT_TRUE(worked_on.free(kPerThreadStream));
  }).join();
  std::thread([&] {
    ASSERT_TRUE(driver().ctx_push_current());
    memory(512);
  }).join();
  EXPECT_TRUE(driver().ctx_synchronize()) << "nothing is unmapped while its work runs";
}

TEST_F(PoolOrder, ARequestWaitsForNoMoreFreesThanItNeeds) {
  make("pool");
  one = stream();
  two = stream();
  std::vector<MemoryPointer> pieces;
  for (int i = 0; i < 200; ++i) pieces.push_back(memory(2_MiB, one));
  for (auto& piece : pieces) ASSERT_TRUE(piece.free(two));
  hook.of_streams = 0;
  const auto next = memory(2_MiB, one);
  EXPECT_LE(hook.of_streams, 100);
  const auto all = memory(398_MiB, one);
  EXPECT_EQ(driver().held_bytes(), 400_MiB) << "the others are there when they are needed";
}

TEST_F(PoolOrder, WhatTheDeviceHasNotAtAllTakesNothingFromThePool) {
  for (const auto idle : {8_MiB, 100_MiB}) {
    for (const auto* spec : {"pool", "pool:backing=cumem"}) {
      SCOPED_TRACE(spec);
      make(spec);
      memory(idle);
      const auto held = driver().held_bytes();
      for (const auto size : {std::uint64_t{1} << 50, ~std::uint64_t{0}})
        EXPECT_EQ(manager->memalloc(size).error().code, Errc::out_of_memory);
      EXPECT_EQ(driver().held_bytes(), held);
    }
  }
}

TEST_F(PoolOrder, InitialMayBeAllOfMax) {
  for (const auto* spec : {"pool:initial=3MiB,max=3MiB", "pool:initial=5MiB,max=5MiB,backing=cumem",
                           "pool:initial=1MiB,max=1MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
  }
}

TEST_F(PoolOrder, LessThanAPageIsNoMemory) {
  make("pool");
  const auto less = *find_manager("pool:initial=1MiB,max=1MiB")
                         ->make({.driver = &driver(),
                                 .runtime = nullptr,
                                 .clock = &platform->clock(),
                                 .observer = &observer});
  EXPECT_EQ(less->initialize().error().code, Errc::out_of_memory);
}

TEST_F(PoolOrder, SlabsAreNoLargerThanAskedForWhereMaxIsNear) {
  make("pool:max=64MiB,backing=cumem");
  const auto most = memory(40_MiB);
  const auto little = memory(2_MiB);
  const auto rest = memory(22_MiB);
  EXPECT_EQ(driver().held_bytes(), 64_MiB);
}

TEST_F(PoolOrder, StreamsMayComeWithoutEnd) {
  make("pool:max=64MiB");
  for (int i = 0; i < 2100; ++i) {
    one = stream();
    ASSERT_TRUE(manager->memalloc(1_MiB, one)) << "stream " << i;
    ASSERT_TRUE(driver().stream_destroy(one));
  }
}

TEST_F(PoolOrder, ThousandsOfStreamsHaveMemoryAtOnce) {
  platform = *open_platform("sim:capacity=8GiB,costs=none", {});
  make("pool");
  std::vector<MemoryPointer> all;
  for (int i = 0; i < 2100; ++i) all.push_back(memory(4_KiB, stream()));
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](const MemoryPointer& each) {
    return each.device_pointer() != DevicePtr{};
  }));
}

TEST_F(PoolOrder, AddressesThatAreUsedUpGoBack) {
  make("pool");
  MemoryPointer live;
  for (int cycle = 0; cycle < 1000; ++cycle) {
    auto large = memory(400_MiB);
    live = memory(10_MiB);
    large = {};
    ASSERT_TRUE(manager->trim(0));
  }
  live = {};
  EXPECT_LT(manager->statistics().metadata_bytes.value_or(0), 512_KiB);
}

}  // namespace
}  // namespace emm::test
