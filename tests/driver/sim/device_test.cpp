#include <vector>

#include "base/prng.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

// Measured: the next allocation of 256 bytes is 512 further, of 513 is 1024 further; a larger one
// begins at a page of its own.
TEST_F(SimTest, SmallAllocationsFollowEachOtherAtStepsOf512) {
  const auto first = *driver().mem_alloc(256);

  EXPECT_EQ(first.value % 2_MiB, 0u);
  EXPECT_EQ(*driver().mem_alloc(513), first + 512);
  EXPECT_EQ(*driver().mem_alloc(1), first + 1536);
  EXPECT_EQ(*driver().mem_alloc(1_MiB + 1), first + 2_MiB);
  EXPECT_EQ(*driver().mem_alloc(1_MiB), first + 2048)
      << "the rest of the page still serves small ones";
}

TEST_F(SimTest, TheSameCallsGiveTheSameAddressesAndTimes) {
  const auto run = [] {
    SimPlatform platform({.capacity = 1_GiB});
    auto device = *platform.open(0);
    Prng random(9);
    std::vector<std::uint64_t> seen;
    std::vector<DevicePtr> live;
    for (int step = 0; step < 2000; ++step) {
      if (live.empty() || random.chance(0.6)) {
        const auto ptr = device.driver->mem_alloc(random.log_uniform(1, 64_MiB));
        if (ptr) live.push_back(*ptr);
        seen.push_back(ptr ? ptr->value : 0);
      } else {
        const auto index = static_cast<std::ptrdiff_t>(random.below(live.size()));
        EXPECT_TRUE(device.driver->mem_free(live[static_cast<std::size_t>(index)]));
        live.erase(live.begin() + index);
      }
      const auto host = *device.driver->mem_host_alloc(random.between(1, 64_KiB), {});
      seen.push_back(device.driver->log_address(host));
      if (random.chance(0.8)) {
        EXPECT_TRUE(device.driver->mem_free_host(host));
      }
      seen.push_back(platform.clock().now_ns());
    }
    return seen;
  };

  EXPECT_EQ(run(), run());
}

TEST_F(SimTest, WhatIsLargestFreeIsServedAndNoMore) {
  std::vector<DevicePtr> live;
  for (const std::uint64_t size : {30_MiB, 100_KiB, 5_MiB, 9_MiB})
    live.push_back(*driver().mem_alloc(size));
  ASSERT_TRUE(driver().mem_free(live[2]));

  while (const auto largest = driver().largest_free_bytes()) {
    EXPECT_EQ(native(driver().mem_alloc(largest + 1)), 2);
    ASSERT_TRUE(driver().mem_alloc(largest));
  }
  // Small allocations still fit in no hole, since the largest hole was filled too.
  EXPECT_EQ(native(driver().mem_alloc(1)), 2);
  EXPECT_EQ(driver().mem_get_info()->free, 0u);
}

TEST_F(SimTest, ManagedMemoryTakesNoneOfTheDevice) {
  const auto before = *driver().mem_get_info();

  const auto ptr = driver().mem_alloc_managed(1_GiB, AttachFlags::global);
  ASSERT_TRUE(ptr);
  EXPECT_EQ(*driver().mem_get_info(), before);
  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_TRUE(driver().mem_free(*ptr));
  EXPECT_EQ(native(driver().mem_free(*ptr)), 1);
}

TEST_F(SimTest, ObjectsOfOtherDriversAreUnknownHandles) {
  const auto event = *driver().event_create();
  ASSERT_TRUE(driver().event_destroy(event));

  EXPECT_EQ(native(driver().event_destroy(event)), 400);
  EXPECT_EQ(native(driver().stream_destroy({77})), 400);
  EXPECT_EQ(native(driver().stream_synchronize({77})), 400);
  EXPECT_EQ(native(driver().library_unload({77})), 400);
}

TEST_F(SimTest, AResetEndsHostMemoryRegistrationsAndObjects) {
  const auto host = *driver().mem_host_alloc(4_KiB, {});
  std::vector<std::byte> own(4_KiB);
  ASSERT_TRUE(driver().mem_host_register({own.data(), own.size()}, {}));
  const auto stream = *driver().stream_create();
  const auto managed = *driver().mem_alloc_managed(4_KiB, AttachFlags::host);

  ASSERT_TRUE(driver().primary_ctx_reset());
  EXPECT_EQ(native(driver().primary_ctx_reset()), 709);
  reopen();

  EXPECT_EQ(native(driver().mem_free_host(host)), 1);
  EXPECT_EQ(native(driver().mem_host_unregister(own.data())), 713);
  EXPECT_EQ(native(driver().stream_destroy(stream)), 400);
  EXPECT_EQ(native(driver().mem_free(managed)), 1);
}

TEST_F(SimTest, AnAddressFromBeforeAResetIsFreedOnce) {
  const auto ptr = *driver().mem_alloc(4_MiB);
  ASSERT_TRUE(driver().primary_ctx_reset());
  reopen();

  EXPECT_TRUE(driver().mem_free(ptr));
  EXPECT_EQ(native(driver().mem_free(ptr)), 1);
}

TEST_F(SimTest, DriversOfOneDeviceShareItsContext) {
  auto second = open(0);

  EXPECT_EQ(second.driver->context_handle(), driver().context_handle());
  EXPECT_TRUE(second.driver->mem_free(*driver().mem_alloc(1_MiB)));
  ASSERT_TRUE(driver().primary_ctx_reset());
  EXPECT_EQ(native(second.driver->mem_alloc(1)), 709);
}

TEST_F(SimTest, AContextIsPoppedAfterItsReset) {
  ASSERT_TRUE(driver().ctx_push_current());
  ASSERT_TRUE(driver().primary_ctx_reset());

  EXPECT_EQ(native(driver().ctx_push_current()), 709);
  EXPECT_TRUE(driver().ctx_pop_current());
  EXPECT_EQ(native(driver().ctx_pop_current()), 201);
}

class TwoDevicesTest : public SimTest {
 protected:
  TwoDevicesTest() : SimTest({.capacity = 64_MiB, .devices = 2}), second_(open(1)) {}
  Driver& second() { return *second_.driver; }

 private:
  OpenedDevice second_;
};

TEST_F(TwoDevicesTest, HaveAddressesAndIdentitiesOfTheirOwn) {
  EXPECT_NE(*driver().mem_alloc(1), *second().mem_alloc(1));
  EXPECT_NE(driver().device_identity(), second().device_identity());
  EXPECT_EQ(second().device_ordinal(), 1);
  EXPECT_NE(driver().context_handle(), second().context_handle());
}

TEST_F(TwoDevicesTest, HaveCapacitiesOfTheirOwn) {
  ASSERT_TRUE(driver().mem_alloc(64_MiB));

  EXPECT_FALSE(driver().mem_alloc(1));
  EXPECT_EQ(second().largest_free_bytes(), 64_MiB);
}

TEST_F(TwoDevicesTest, AreEachOthersPeersAndNotTheirOwn) {
  EXPECT_TRUE(*driver().can_access_peer(second().device_identity()));
  EXPECT_FALSE(*driver().can_access_peer(driver().device_identity()));
  EXPECT_EQ(native(driver().can_access_peer({1, 2, 3})), 101);
}

TEST_F(TwoDevicesTest, ShareOneAddressSpace) {
  const auto from = *driver().mem_alloc(1_MiB);
  const auto to = *second().mem_alloc(1_MiB);
  ASSERT_TRUE(driver().memset_d32(from, 5, 1024));

  EXPECT_TRUE(second().memcpy_dtod(to, from, 4_KiB));
  EXPECT_EQ(word_at(to + 4092), 5u);
  EXPECT_EQ(driver().mem_get_address_range(to + 1)->base, to);
  EXPECT_TRUE(driver().mem_free(to));
  EXPECT_EQ(second().held_bytes(), 0u);
}

TEST_F(TwoDevicesTest, ThreadsHaveOneStackOfContextsForBoth) {
  ASSERT_TRUE(driver().ctx_push_current());
  ASSERT_TRUE(second().ctx_push_current());

  EXPECT_EQ(*driver().ctx_pop_current(), second().context_handle());
  EXPECT_EQ(*driver().ctx_pop_current(), driver().context_handle());
}

TEST_F(TwoDevicesTest, AreResetApart) {
  ASSERT_TRUE(driver().primary_ctx_reset());

  EXPECT_TRUE(second().mem_alloc(1));
}

}  // namespace
}  // namespace emm
