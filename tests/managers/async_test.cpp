#include <gtest/gtest.h>

#include <thread>

#include "base/units.hpp"
#include "driver/call.hpp"
#include "driver/decorate/call_ledger.hpp"
#include "driver/sim/sim_platform.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

/// The async manager on a simulated device of 256 MiB.
class AsyncManager : public ::testing::Test {
 protected:
  void make(const std::string& spec) {
    manager.reset();
    platform = std::make_unique<SimPlatform>(SimOptions{.capacity = 256_MiB});
    device = *platform->open(0);
    counted = std::make_unique<CountingDriver>(*device.driver);
    manager = *find_manager(spec)->make({.driver = counted.get(),
                                         .runtime = device.runtime.get(),
                                         .clock = &platform->clock(),
                                         .observer = &observer});
  }
  MemoryPointer memory(std::uint64_t size, StreamHandle stream = {}) {
    auto made = manager->memalloc(size, stream);
    EXPECT_TRUE(made) << describe(made.error());
    return *std::move(made);
  }
  std::uint64_t calls(Call call) const { return counted->ledger().calls(call).made; }

  std::unique_ptr<SimPlatform> platform;
  OpenedDevice device;
  std::unique_ptr<CountingDriver> counted;
  RecordingObserver observer;
  std::unique_ptr<MemoryManager> manager;
};

TEST_F(AsyncManager, MakesItsPoolAtTheFirstNeedAndEndsIt) {
  make("async");
  EXPECT_EQ(counted->ledger().calls().made, 0u);
  { const auto a = memory(1_MiB); }
  { const auto b = memory(1_MiB); }
  EXPECT_EQ(calls(Call::mem_pool_create), 1u);
  manager.reset();
  EXPECT_TRUE(counted->ledger().balances()) << counted->ledger().verdict();
  EXPECT_EQ(device.driver->held_bytes(), 0u);
}

TEST_F(AsyncManager, MemoryIsUsedAgainOnItsStreamAtOnce) {
  make("async");
  const auto stream = *device.driver->stream_create();
  auto first = memory(1_MiB, stream);
  const auto address = first.device_pointer();
  ASSERT_TRUE(first.free(stream));
  EXPECT_EQ(memory(1_MiB, stream).device_pointer(), address);
  EXPECT_EQ(calls(Call::mem_free), 0u);
}

TEST_F(AsyncManager, OnAnotherStreamOnlyInOrder) {
  make("async");
  const auto a = *device.driver->stream_create(StreamKind::non_blocking);
  const auto b = *device.driver->stream_create(StreamKind::non_blocking);
  auto first = memory(1_MiB, a);
  const auto address = first.device_pointer();
  ASSERT_TRUE(device.driver->memset_d8_async(address, 7, 1_MiB, a));
  ASSERT_TRUE(first.free(a));
  const auto second = memory(1_MiB, b);
  ASSERT_TRUE(device.driver->memset_d8_async(second.device_pointer(), 9, 1_MiB, b));
  ASSERT_TRUE(device.driver->ctx_synchronize());
  std::byte seen{};
  ASSERT_TRUE(device.driver->memcpy_dtoh({&seen, 1}, second.device_pointer()));
  EXPECT_EQ(seen, std::byte{9}) << "the work of the first stream came before, or elsewhere";
}

TEST_F(AsyncManager, AFreeElsewhereComesAfterTheWorkOfTheAllocationsStream) {
  make("async");
  const auto a = *device.driver->stream_create(StreamKind::non_blocking);
  const auto b = *device.driver->stream_create(StreamKind::non_blocking);
  auto first = memory(1_MiB, a);
  ASSERT_TRUE(device.driver->memset_d8_async(first.device_pointer(), 7, 1_MiB, a));
  ASSERT_TRUE(first.free(b));
  const auto second = memory(1_MiB, b);
  ASSERT_TRUE(device.driver->memset_d8_async(second.device_pointer(), 9, 1_MiB, b));
  ASSERT_TRUE(device.driver->stream_synchronize(b));
  ASSERT_TRUE(device.driver->stream_synchronize(a));
  std::byte seen{};
  ASSERT_TRUE(device.driver->memcpy_dtoh({&seen, 1}, second.device_pointer()));
  EXPECT_EQ(seen, std::byte{9});
  EXPECT_EQ(calls(Call::ctx_synchronize), 0u);
}

TEST_F(AsyncManager, ThePerThreadStreamOfAnotherThreadIsAnotherStream) {
  make("async");
  auto own = memory(1_MiB, kPerThreadStream);
  auto handed_over = memory(1_MiB, kPerThreadStream);

  ASSERT_TRUE(own.free(kPerThreadStream));
  EXPECT_EQ(calls(Call::ctx_synchronize), 0u);
  std::thread([&] { EXPECT_TRUE(handed_over.free(kPerThreadStream)); }).join();

  EXPECT_EQ(calls(Call::ctx_synchronize), 1u) << "no event of this thread orders that free";
}

TEST_F(AsyncManager, KeepsUpToTheReleaseThresholdAndTrims) {
  make("async");
  { const auto held = memory(64_MiB); }
  ASSERT_TRUE(device.driver->ctx_synchronize());
  EXPECT_GE(device.driver->held_bytes(), 64_MiB);
  ASSERT_TRUE(manager->trim(0));
  EXPECT_EQ(device.driver->held_bytes(), 0u);

  make("async:release_threshold=0");
  { const auto held = memory(64_MiB); }
  ASSERT_TRUE(device.driver->ctx_synchronize());
  EXPECT_EQ(device.driver->held_bytes(), 0u);
}

TEST_F(AsyncManager, TriesAgainWhenTheDeviceIsFull) {
  make("async");
  auto first = memory(160_MiB);
  ASSERT_TRUE(first.free());
  const auto other = *device.driver->stream_create(StreamKind::non_blocking);
  EXPECT_TRUE(manager->memalloc(200_MiB, other))
      << "what is idle for another stream is released first";
  EXPECT_EQ(manager->memalloc(300_MiB).error().code, Errc::out_of_memory);
}

TEST_F(AsyncManager, AnOutOfMemoryFreesWhatIsPending) {
  make("async:capacity=1GiB");
  { const auto managed = *manager->memallocmanaged(1_MiB, AttachFlags::global); }
  ASSERT_EQ(manager->state().pending_count, 1u);
  EXPECT_FALSE(manager->memalloc(300_MiB));
  EXPECT_EQ(manager->state().pending_count, 0u);
}

TEST_F(AsyncManager, MaxIsTheMostItHolds) {
  make("async:max=32MiB");
  const auto held = memory(32_MiB);
  EXPECT_EQ(manager->memalloc(1_MiB).error().code, Errc::out_of_memory);
}

TEST_F(AsyncManager, ASizeOfZeroIsNoMemory) {
  make("async");
  const auto none = memory(0);
  EXPECT_FALSE(none.device_pointer());
  EXPECT_FALSE(none.is_managed());
}

TEST_F(AsyncManager, ResetWaitsEndsAllAndGivesItBack) {
  make("async");
  const auto stream = *device.driver->stream_create(StreamKind::non_blocking);
  const auto held = memory(8_MiB, stream);
  ASSERT_TRUE(device.driver->memset_d8_async(held.device_pointer(), 1, 8_MiB, stream));
  manager->reset();
  EXPECT_FALSE(held.alive());
  EXPECT_EQ(device.driver->held_bytes(), 0u);
  EXPECT_EQ(manager->state().live_bytes, 0u);
  EXPECT_TRUE(manager->memalloc(1_MiB)) << "and goes on";
}

TEST_F(AsyncManager, FreesNotDeferredButHostFreesAre) {
  make("async:capacity=1000");
  const auto guard = manager->defer_cleanup();
  { const auto held = memory(1_MiB); }
  EXPECT_EQ(calls(Call::mem_free_async), 1u);
  ASSERT_TRUE(manager->memhostalloc(16, {}));
  EXPECT_EQ(calls(Call::mem_free_host), 0u);
}

TEST_F(AsyncManager,
       ExportsNothing) {  // 64-byte handles are refused for stream-ordered memory (measured)
  make("async");
  const auto held = memory(1_MiB);
  EXPECT_EQ(manager->get_ipc_handle(*held.view()).error().code, Errc::not_supported);
}

TEST_F(AsyncManager, CountsAFreeThatFails) {
  make("async");
  {
    const auto held = memory(1_MiB);
    ASSERT_TRUE(device.driver->primary_ctx_reset());
  }
  EXPECT_EQ(observer.failures, std::vector<int>{709});
}

}  // namespace
}  // namespace emm::test
