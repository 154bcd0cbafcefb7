// Over a scripted device, which has no virtual memory: the pool is backed by cuMemAlloc there.
#include "base/units.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

TEST(PoolManager, CutsSmallRequestsFromOneSlab) {
  Rig rig("pool");
  const auto a = rig.memory(100);
  const auto b = rig.memory(1000);
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 2_MiB}}));
  EXPECT_EQ(b.device_pointer() - a.device_pointer(), 512u);
  EXPECT_EQ(a.size(), 100u);
  EXPECT_EQ(rig.manager->state().live_bytes, 1100u);
  EXPECT_EQ(rig.manager->state().reserved_bytes, 2_MiB);
  EXPECT_EQ(rig.manager->state().largest_free_bytes, 2_MiB - 1536);
}

TEST(PoolManager, ReusesWhatWasFreedWithoutTheDriver) {
  Rig rig("pool");
  const auto first = rig.memory(100).device_pointer();
  rig.taken();
  EXPECT_EQ(rig.memory(100).device_pointer(), first);
  EXPECT_EQ(rig.taken(), Rig::Calls{});
}

TEST(PoolManager, TakesTwoBlocksOfHalfItsLimit) {
  Rig rig("pool:max=64MiB");
  const auto a = rig.memory(32_MiB);
  const auto b = rig.memory(32_MiB);
  EXPECT_EQ(rig.manager->memalloc(1).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.driver.held_bytes(), 64_MiB);
}

TEST(PoolManager, FitsASmallLimit) {
  Rig rig("pool:max=1MiB");
  const auto a = rig.memory(512_KiB);
  const auto b = rig.memory(512_KiB);
  EXPECT_FALSE(rig.manager->memalloc(1));
  EXPECT_FALSE(rig.manager->memalloc(2_MiB));
}

TEST(PoolManager, GivesIdleSlabsBackBeforeItFails) {
  Rig rig("pool:max=64MiB");
  { const auto a = rig.memory(40_MiB); }
  const auto b = rig.memory(60_MiB);
  EXPECT_EQ(rig.driver.held_bytes(), 60_MiB);
}

TEST(PoolManager, MakesDoWithLessThanASlabWhereTheDeviceIsFull) {
  Rig rig("pool");
  rig.driver.capacity = 5_MiB;
  const auto memory = rig.memory(3_MiB);
  EXPECT_EQ(rig.driver.held_bytes(), 4_MiB);
  rig.taken();
  EXPECT_EQ(rig.manager->memalloc(3_MiB).error().native, 2);
  EXPECT_EQ(rig.driver.alive(), 1u);
}

TEST(PoolManager, FreesPendingHostAndManagedMemoryBeforeItFails) {
  Rig rig("pool:capacity=1GiB");
  rig.driver.capacity = rig.driver.total = 8_MiB;
  ASSERT_TRUE(rig.manager->memallocmanaged(6_MiB, AttachFlags::global));
  const auto memory = rig.memory(4_MiB);
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{1, 6_MiB}}));
}

TEST(PoolManager, RefusesASizeOfZeroAsTheDriverDoes) {
  Rig rig("pool");
  EXPECT_EQ(rig.manager->memalloc(0).error().native, 1);
  EXPECT_EQ(rig.manager->memalloc(~std::uint64_t{0}).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.taken(), Rig::Calls{});
}

TEST(PoolManager, AStreamHasItsOwnMemory) {
  Rig rig("pool");
  rig.memory(2_MiB, {7});
  rig.taken();
  rig.memory(2_MiB, {7});
  EXPECT_EQ(rig.taken(), Rig::Calls{}) << "the same stream needs no wait";
  rig.memory(2_MiB, {8});
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 2_MiB}}));
}

TEST(PoolManager, TheDefaultStreamHasTwoNames) {
  Rig rig("pool");
  auto memory = rig.memory(2_MiB);
  rig.taken();
  ASSERT_TRUE(memory.free(kLegacyStream));
  rig.memory(2_MiB, kLegacyStream);
  EXPECT_EQ(rig.taken(), Rig::Calls{}) << "it is in order, and needs no event";
}

TEST(PoolManager, SlabsThatAreTooSmallMakePlaceForALargerOne) {
  Rig rig("pool:backing=cumem");
  rig.memory(40_MiB);
  rig.taken();
  rig.memory(50_MiB);
  EXPECT_EQ(rig.driver.held_bytes(), 50_MiB);
  rig.taken();
  rig.memory(40_MiB);
  rig.memory(50_MiB);
  EXPECT_EQ(rig.taken(), Rig::Calls{}) << "and it serves both from then on";
}

TEST(PoolManager, SlabsAreKeptWhileCleanupIsDeferred) {  // DFR-5
  Rig rig("pool:backing=cumem");
  rig.memory(40_MiB);
  const auto guard = rig.manager->defer_cleanup();
  rig.memory(50_MiB);
  EXPECT_EQ(rig.driver.count(Call::mem_free), 0u);
  EXPECT_EQ(rig.driver.held_bytes(), 90_MiB);
}

TEST(PoolManager, WhatAnotherStreamHoldsIdleMakesRoom) {
  Rig rig("pool:max=2MiB");
  rig.memory(2_MiB, {7});
  rig.taken();
  rig.memory(2_MiB, {8});
  EXPECT_EQ(rig.driver.count(Call::mem_free), 1u) << "cuMemFree waits by itself";
  EXPECT_EQ(rig.driver.held_bytes(), 2_MiB);
}

TEST(PoolManager, WaitsForTheDeviceWhereNoEventMakesAnOrder) {
  Rig rig("pool:max=2MiB");
  auto memory = rig.memory(2_MiB, {7});
  ASSERT_TRUE(memory.free({8}));
  rig.driver.answer(Call::event_record, {400});
  rig.taken();
  rig.memory(2_MiB, {7});
  EXPECT_EQ(rig.driver.count(Call::ctx_synchronize), 1u);
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 0u);
}

TEST(PoolManager, ReservesItsInitialSizeOnce) {  // INI-2
  Rig rig("pool:initial=10MiB,capacity=1GiB");
  EXPECT_EQ(rig.taken(), Rig::Calls{});
  EXPECT_TRUE(rig.manager->initialize());
  EXPECT_TRUE(rig.manager->initialize());
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 10_MiB}}));
  const auto memory = rig.memory(10_MiB);
  EXPECT_EQ(rig.taken(), Rig::Calls{});
}

TEST(PoolManager, ReturnsIdleSlabsAboveItsThreshold) {
  Rig rig("pool:release_threshold=4MiB");
  {
    const auto a = rig.memory(4_MiB);
    const auto b = rig.memory(4_MiB);
    EXPECT_EQ(rig.driver.held_bytes(), 8_MiB);
  }
  EXPECT_EQ(rig.driver.held_bytes(), 4_MiB);
}

TEST(PoolManager, DeferralKeepsSlabsButNotMemory) {  // DFR-5
  Rig rig("pool:release_threshold=0,max=4MiB");
  auto outer = rig.manager->defer_cleanup();
  {
    const auto inner = rig.manager->defer_cleanup();
    rig.memory(4_MiB);
  }
  rig.memory(4_MiB);
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 1u) << "memory returns to the pool at once";
  EXPECT_EQ(rig.driver.count(Call::mem_free), 0u);
  outer.end();
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST(PoolManager, ResetGivesAllBack) {
  Rig rig("pool");
  const auto a = rig.memory(100);
  { const auto b = rig.memory(100_MiB); }
  rig.manager->reset();
  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_FALSE(a.alive());
  EXPECT_EQ(rig.manager->state().live_bytes, 0u);
  const auto c = rig.memory(100);
  EXPECT_TRUE(c.alive());
}

TEST(PoolManager, ResetInsideDeferralGivesAllBackAtItsEnd) {  // RST-8
  Rig rig("pool");
  const auto memory = rig.memory(100);
  {
    const auto deferred = rig.manager->defer_cleanup();
    rig.manager->reset();
    EXPECT_FALSE(memory.alive());
    EXPECT_EQ(rig.driver.alive(), 1u);
  }
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST(PoolManager, ExportsTheSlabWithTheOffsetOfTheBlock) {  // IPC-2, IPC-4
  Rig rig("pool");
  const auto a = rig.memory(1024);
  const auto b = rig.memory(1024);
  const auto first = rig.manager->get_ipc_handle(*a.view(0));
  const auto second = rig.manager->get_ipc_handle(*b.view(64, 128));
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(first->fields().handle, second->fields().handle);
  EXPECT_EQ(first->fields().offset, 0u);
  EXPECT_EQ(second->fields().offset, 1024u + 64);
}

TEST(PoolManager, MemoryInfoIsTheDevices) {  // INF-6
  Rig rig("pool");
  EXPECT_EQ(*rig.manager->get_memory_info(), (MemoryInfo{.free = 1000, .total = 1000}));
}

TEST(PoolManager, AlignsAsItIsTold) {
  Rig rig("pool:alignment=4KiB");
  rig.memory(1);
  const auto a = rig.memory(1);
  const auto b = rig.memory(1);
  EXPECT_EQ(b.device_pointer() - a.device_pointer(), 4096u);
}

TEST(PoolManager, ItsEndGivesAllBack) {
  Rig rig("pool:profile=numba");
  const auto memory = rig.memory(100);
  rig.manager.reset();
  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_FALSE(memory.alive());
}

TEST(PoolManager, GivesIdleSlabsBackBesideThoseInUse) {
  Rig rig("pool:max=64MiB");
  const auto kept = rig.memory(4_MiB);
  { const auto dropped = rig.memory(40_MiB); }
  const auto fits_only_without = rig.memory(50_MiB);
  EXPECT_EQ(rig.driver.held_bytes(), 54_MiB);
}

TEST(PoolManager, SaysThatTheDeviceCouldNotBeWaitedFor) {
  Rig rig("pool");
  ASSERT_TRUE(rig.memory(100, {7}).free({8}));
  rig.driver.answer(Call::ctx_synchronize, {700});
  const auto trimmed = rig.manager->trim(0);
  EXPECT_EQ(trimmed.error().native, 700);
  EXPECT_EQ(rig.observer.failures, std::vector<int>{700});
  EXPECT_EQ(rig.driver.alive(), 1u);
  EXPECT_TRUE(rig.manager->trim(0)) << "the memory is there still, and goes back";
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST(PoolManager, CountsASlabThatCannotBeReleased) {
  Rig rig("pool");
  rig.memory(100);
  rig.driver.answer(Call::mem_free, {700});
  rig.manager->reset();
  EXPECT_EQ(rig.observer.failures, std::vector<int>{700});
}

}  // namespace
}  // namespace emm::test
