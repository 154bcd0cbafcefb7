#include <map>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

class PoolsTest : public SimTest {
 protected:
  explicit PoolsTest(const SimOptions& options = {.capacity = 256_MiB})
      : SimTest(options), pool_(*driver().mem_pool_create()) {}
  PoolHandle pool() const { return pool_; }
  StreamHandle stream() { return *driver().stream_create(StreamKind::non_blocking); }
  std::uint64_t get(PoolAttribute attribute) {
    return *driver().mem_pool_get_attribute(pool_, attribute);
  }
  void set(PoolAttribute attribute, std::uint64_t value) {
    ASSERT_TRUE(driver().mem_pool_set_attribute(pool_, attribute, value));
  }
  DevicePtr allocate(std::uint64_t size, StreamHandle stream) {
    return *driver().mem_alloc_from_pool_async(size, pool_, stream);
  }
  /// Work that is pending until something waits for the stream.
  void keep_busy(StreamHandle stream) {
    if (!busy_) busy_ = *driver().mem_alloc(512);
    ASSERT_TRUE(driver().memset_d8_async(busy_, 1, 512, stream));
  }

 private:
  PoolHandle pool_;
  DevicePtr busy_;
};

TEST_F(PoolsTest, NeighboursThatAreFreeForOneStreamBecomeOne) {
  const auto on = stream();
  std::vector<DevicePtr> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(allocate(8_MiB, on));
  keep_busy(on);
  for (const auto i : {2, 0, 3, 1}) {
    ASSERT_TRUE(driver().mem_free_async(pieces[static_cast<std::size_t>(i)], on));
  }

  EXPECT_EQ(allocate(32_MiB, on), pieces[0]);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 32_MiB);
}

TEST_F(PoolsTest, OrderIsInsertedWhereThePoolCannotGrow) {
  const auto small = *driver().mem_pool_create(32_MiB);
  const auto first = stream(), second = stream();
  const auto ptr = *driver().mem_alloc_from_pool_async(32_MiB, small, first);
  keep_busy(first);
  ASSERT_TRUE(driver().mem_free_async(ptr, first));

  EXPECT_EQ(*driver().mem_alloc_from_pool_async(16_MiB, small, second), ptr);

  EXPECT_FALSE(*driver().stream_query(second)) << "it waits for the free";
  ASSERT_TRUE(driver().stream_synchronize(second));
  EXPECT_TRUE(*driver().stream_query(first));
}

TEST_F(PoolsTest, GrowthIsByWholePiecesOrNotAtAll) {
  const auto rest = *driver().mem_alloc(256_MiB - 60_MiB);
  const auto on = stream();
  const auto first = allocate(16_MiB, on);

  EXPECT_EQ(native(driver().mem_alloc_from_pool_async(24_MiB, pool(), on)), 2);
  EXPECT_EQ(driver().held_bytes(), 256_MiB - 60_MiB + 32_MiB) << "and no piece of it is left";
  EXPECT_EQ(allocate(16_MiB, on), first + 16_MiB);
  EXPECT_TRUE(driver().mem_free(rest));
}

TEST_F(PoolsTest, GapsInAPoolsRowAreFilledAgain) {
  const auto on = stream();
  const auto low = allocate(64_MiB, on), high = allocate(32_MiB, on);
  ASSERT_TRUE(driver().mem_free_async(low, on));
  ASSERT_TRUE(driver().stream_synchronize(on));
  ASSERT_EQ(get(PoolAttribute::reserved_current), 32_MiB);

  EXPECT_EQ(allocate(96_MiB, on), high + 32_MiB);
  EXPECT_EQ(allocate(48_MiB, on), low);
  EXPECT_EQ(allocate(16_MiB, on), low + 48_MiB);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 192_MiB);
}

TEST_F(PoolsTest, WhatAStreamFreedLastServesBeforeWhatFitsBetter) {
  const auto small = allocate(1_MiB, {}), between = allocate(1_MiB, {});
  const auto large = allocate(4_MiB, {});
  allocate(1_MiB, {});
  ASSERT_TRUE(driver().mem_free_async(small, {}));
  ASSERT_TRUE(driver().memset_d8(between, 1, 512));
  ASSERT_TRUE(driver().mem_free_async(large, {}));

  EXPECT_EQ(allocate(1_MiB, {}), large);
  EXPECT_EQ(allocate(1_MiB, {}), large + 1_MiB) << "and so does what is left of it";
  EXPECT_EQ(allocate(3_MiB, {}), large + 5_MiB) << "what fits in neither goes to the end";
  EXPECT_EQ(allocate(1_MiB, {}), small) << "for which that store was given up";
}

TEST_F(PoolsTest, AfterOtherWorkOnItsStreamWhatWasFreedIsAsAllElse) {
  const auto small = allocate(1_MiB, {}), between = allocate(1_MiB, {});
  const auto large = allocate(4_MiB, {});
  allocate(1_MiB, {});
  ASSERT_TRUE(driver().mem_free_async(small, {}));
  ASSERT_TRUE(driver().mem_free_async(large, {}));
  ASSERT_TRUE(driver().memset_d8(between, 1, 512));

  EXPECT_EQ(allocate(1_MiB, {}), small);
  EXPECT_EQ(allocate(1_MiB, {}), large);
}

TEST_F(PoolsTest, IdlePiecesAreMappedWhereABlockIsToLie) {
  const auto low = allocate(32_MiB, {}), high = allocate(8_MiB, {});
  ASSERT_TRUE(driver().mem_free_async(low, {}));

  EXPECT_EQ(allocate(56_MiB, {}), high + 8_MiB);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  EXPECT_EQ(allocate(16_MiB, {}), low) << "where they were is a hole to be filled again";
  EXPECT_EQ(get(PoolAttribute::reserved_current), 96_MiB);
}

TEST_F(PoolsTest, WorkThatComesAfterATrimIsAFault) {
  const auto on = stream(), other = stream();
  const auto ptr = allocate(1_MiB, on);
  ASSERT_TRUE(driver().memset_d8_async(ptr, 1, 1_MiB, other));
  ASSERT_TRUE(driver().mem_free_async(ptr, on));
  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 0));

  EXPECT_EQ(native(driver().stream_synchronize(other)), 700);
}

TEST_F(PoolsTest, ContentOfWorkThatWasNotOrderedIsLostToTheNextUser) {
  const auto on = stream(), other = stream();
  const auto ptr = allocate(1_MiB, on);
  ASSERT_TRUE(driver().memset_d8_async(ptr, 1, 1_MiB, other));
  ASSERT_TRUE(driver().mem_free_async(ptr, on)) << "though another stream still writes to it";
  ASSERT_EQ(allocate(1_MiB, on), ptr);
  ASSERT_TRUE(driver().memset_d8_async(ptr, 2, 1_MiB, on));
  ASSERT_TRUE(driver().stream_synchronize(on));
  EXPECT_EQ(word_at(ptr), 0x02020202u);

  ASSERT_TRUE(driver().stream_synchronize(other));
  EXPECT_EQ(word_at(ptr), 0x01010101u);
}

TEST_F(PoolsTest, MappingsOfAPoolAreItsOwn) {
  const auto ptr = allocate(32_MiB, stream());

  EXPECT_EQ(native(driver().mem_unmap(ptr, 32_MiB)), 1);
  EXPECT_EQ(native(driver().mem_set_access(ptr, 32_MiB, AccessFlags::none)), 1);
}

TEST_F(PoolsTest, AFullQueueTakesFreesToo) {
  const auto on = stream();
  const auto ptr = allocate(1_MiB, on);
  for (int i = 0; i < 1024; ++i) keep_busy(on);

  ASSERT_TRUE(driver().mem_free_async(ptr, on));
  EXPECT_FALSE(*driver().stream_query(on));
  EXPECT_EQ(allocate(1_MiB, on), ptr);
}

TEST_F(PoolsTest, PoolsThatAreGoneAreUnknown) {
  ASSERT_TRUE(driver().mem_pool_destroy(pool()));

  EXPECT_EQ(native(driver().mem_pool_destroy(pool())), 1);
  EXPECT_EQ(native(driver().mem_pool_trim_to(pool(), 0)), 1);
  EXPECT_EQ(native(driver().mem_alloc_from_pool_async(1, pool(), {})), 1);
  EXPECT_EQ(native(driver().mem_alloc_async(1, {77})), 400);
  EXPECT_EQ(native(driver().mem_free_async({0x1234}, {})), 1);
}

TEST_F(PoolsTest, AResetEndsPoolsAndTheirMemory) {
  const auto ptr = *driver().mem_alloc_async(1_MiB, {});
  const auto before = *driver().device_get_default_mem_pool();
  ASSERT_TRUE(driver().primary_ctx_reset());
  reopen();

  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_EQ(native(driver().mem_free_async(ptr, {})), 1);
  EXPECT_NE(*driver().device_get_default_mem_pool(), before);
  EXPECT_TRUE(driver().mem_alloc_async(1_MiB, {}));
}

TEST_F(PoolsTest, ManyRandomCallsNeverHandOutWhatAnotherHas) {
  constexpr std::uint64_t kSeed = 12;
  SCOPED_TRACE(kSeed);
  Prng random(kSeed);
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(stream());
  keep_busy(streams[0]);
  const auto mark = *driver().event_create();
  std::map<DevicePtr, std::uint64_t> live;
  std::uint64_t used = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto on = streams[random.below(4)];
    if (random.chance(0.5)) {
      const auto size = random.log_uniform(1, 16_MiB);
      const auto ptr = driver().mem_alloc_from_pool_async(size, pool(), on);
      if (!ptr) {
        ASSERT_EQ(ptr.error().native, 2);
      } else {
        const auto next = live.lower_bound(*ptr);
        ASSERT_TRUE(next == live.end() || *ptr + size <= next->first) << step;
        ASSERT_TRUE(next == live.begin() ||
                    std::prev(next)->first + std::prev(next)->second <= *ptr);
        live.emplace(*ptr, size);
        used += size;
      }
    } else if (!live.empty()) {
      auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random.below(live.size())));
      ASSERT_TRUE(random.chance(0.9) ? driver().mem_free_async(victim->first, on)
                                     : driver().mem_free(victim->first));
      used -= victim->second;
      live.erase(victim);
    }
    if (random.chance(0.3)) keep_busy(on);
    if (random.chance(0.1)) {
      ASSERT_TRUE(driver().event_record(mark, on));
      ASSERT_TRUE(driver().stream_wait_event(streams[random.below(4)], mark));
    }
    if (random.chance(0.02)) {
      ASSERT_TRUE(driver().stream_synchronize(on));
    }
    ASSERT_EQ(get(PoolAttribute::used_current), used);
    ASSERT_EQ(get(PoolAttribute::reserved_current) + 2_MiB, driver().held_bytes())
        << "and the page of the work that keeps streams busy";
  }
  for (const auto& [ptr, size] : live) ASSERT_TRUE(driver().mem_free_async(ptr, streams[0]));
  ASSERT_TRUE(driver().ctx_synchronize());
  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
}

TEST_F(PoolsTest, ThreadsAllocateOnTheirStreamsTogether) {
  const auto work = [&] {
    const auto on = stream();
    for (int step = 0; step < 300; ++step) {
      const auto ptr = driver().mem_alloc_async(1_MiB, on);
      ASSERT_TRUE(ptr);
      EXPECT_TRUE(driver().memset_d8_async(*ptr, 1, 1_MiB, on));
      EXPECT_TRUE(driver().mem_free_async(*ptr, on));
      if (step % 10 == 0) {
        EXPECT_TRUE(driver().stream_synchronize(on));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();

  ASSERT_TRUE(driver().ctx_synchronize());
  EXPECT_EQ(driver().held_bytes(), 0u);
}

class PeersTest : public SimTest {
 protected:
  PeersTest() : SimTest({.capacity = 64_MiB, .devices = 2}), second_(open(1)) {}
  Driver& second() { return *second_.driver; }

 private:
  OpenedDevice second_;
};

TEST_F(PeersTest, WorkReachesAnothersMemoryOnlyWhereThatIsEnabled) {
  const auto theirs = *second().mem_alloc(1_MiB);
  const auto mine = *driver().mem_alloc(1_MiB);
  ASSERT_TRUE(driver().memcpy_dtod_async(theirs, mine, 1_MiB, {}));
  EXPECT_TRUE(driver().ctx_synchronize()) << "copies need no access";

  ASSERT_TRUE(driver().ctx_enable_peer_access(second().context_handle()));
  ASSERT_TRUE(driver().memset_d8_async(theirs, 1, 1_MiB, {}));
  EXPECT_TRUE(driver().ctx_synchronize());

  ASSERT_TRUE(driver().ctx_disable_peer_access(second().context_handle()));
  ASSERT_TRUE(driver().memset_d8_async(theirs, 1, 1_MiB, {}));
  EXPECT_EQ(native(driver().ctx_synchronize()), 700);
  EXPECT_TRUE(second().mem_free(theirs)) << "the fault is the other context's";
}

TEST_F(PeersTest, AResetOfEitherEndsAccess) {
  ASSERT_TRUE(driver().ctx_enable_peer_access(second().context_handle()));
  ASSERT_TRUE(second().primary_ctx_reset());

  EXPECT_EQ(native(driver().ctx_enable_peer_access(second().context_handle())), 201);
  auto again = open(1);
  EXPECT_TRUE(driver().ctx_enable_peer_access(again.driver->context_handle()));
}

TEST_F(PeersTest, ACopyBetweenDevicesWaitsForTheWorkOfBoth) {
  const auto mine = *driver().mem_alloc(512), theirs = *second().mem_alloc(512);
  const auto on = *second().stream_create(StreamKind::non_blocking);
  ASSERT_TRUE(second().memset_d8_async(theirs, 3, 512, on));

  ASSERT_TRUE(driver().memcpy_peer(mine, driver().context_handle(), theirs,
                                   second().context_handle(), 512));

  EXPECT_EQ(word_at(mine), 0x03030303u);
  EXPECT_EQ(native(driver().memcpy_peer(mine, {77}, theirs, second().context_handle(), 4)), 201);
}

TEST_F(PeersTest, DevicesThatAreNoPeersRefuse) {
  SimPlatform platform({.capacity = 64_MiB, .devices = 2, .peers = false});
  auto first = *platform.open(0), other = *platform.open(1);

  EXPECT_EQ(native(first.driver->ctx_enable_peer_access(other.driver->context_handle())), 217);
}

TEST_F(PeersTest, AHandleOfOneDeviceIsMappedForAnother) {
  const auto at = *driver().mem_address_reserve(2_MiB);
  const auto handle = *second().mem_create(2_MiB);
  ASSERT_TRUE(driver().mem_map(at, 2_MiB, 0, handle));
  ASSERT_TRUE(driver().mem_set_access(at, 2_MiB, AccessFlags::read_write));
  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_EQ(second().held_bytes(), 2_MiB);

  ASSERT_TRUE(driver().memset_d8_async(at, 1, 2_MiB, {}));
  EXPECT_TRUE(driver().ctx_synchronize());
  ASSERT_TRUE(second().memset_d8_async(at, 1, 2_MiB, {}));
  EXPECT_EQ(native(second().ctx_synchronize()), 700) << "access is each device's own";
}

}  // namespace
}  // namespace emm
