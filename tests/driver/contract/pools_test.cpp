#include "base/units.hpp"
#include "contract/pool_fixture.hpp"

// Stream-ordered memory: what is asked for and released, and what a pool keeps.
namespace emm {
namespace {

// Measured: cuMemAllocAsync(0) and cuMemFreeAsync(0) are 0.
TEST_P(Pools, NothingIsAllocatedAndFreedOnAStream) {
  const auto ptr = driver().mem_alloc_async(0, stream());

  ASSERT_TRUE(ptr);
  EXPECT_EQ(ptr->value, 0u);
  EXPECT_TRUE(driver().mem_free_async({0}, stream()));
}

// Documented: the memory can be used by what follows on the stream.
TEST_P(Pools, StreamOrderedMemoryIsUsedOnItsStream) {
  const auto ptr = allocate(1_MiB);

  EXPECT_TRUE(driver().memset_d8_async(ptr, 42, 1_MiB, stream()));
  EXPECT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(byte_at(ptr + (1_MiB - 1)), 42);
  free(ptr);
}

// Measured.
TEST_P(Pools, TheDefaultStreamsAllocateToo) {
  for (const auto on : {StreamHandle{}, kLegacyStream, kPerThreadStream}) {
    const auto ptr = driver().mem_alloc_async(1_MiB, on);
    ASSERT_TRUE(ptr);
    EXPECT_TRUE(driver().mem_free_async(*ptr, on));
    EXPECT_TRUE(driver().stream_synchronize(on));
  }
}

// Measured: like those of cuMemAlloc.
TEST_P(Pools, StreamOrderedAddressesAreMultiplesOf512) {
  for (const std::uint64_t size : {1u, 100u, 513u, 1048577u}) {
    const auto ptr = allocate(size);
    EXPECT_EQ(ptr.value % 512, 0u) << size;
    free(ptr);
  }
}

// Measured: cuMemFree of async memory is 0, again 1.
TEST_P(Pools, StreamOrderedMemoryIsFreedByMemFreeToo) {
  const auto ptr = must(driver().mem_alloc_async(1_MiB, stream()));
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  EXPECT_TRUE(driver().mem_free(ptr));
  EXPECT_EQ(native(driver().mem_free(ptr)), 1);
}

// Measured: cuMemFreeAsync of cuMemAlloc memory is 0. It is released then.
TEST_P(Pools, MemoryOfMemAllocIsFreedOnAStreamToo) {
  const auto free_before = free_bytes();
  const auto ptr = must(driver().mem_alloc(64_MiB));

  ASSERT_TRUE(driver().mem_free_async(ptr, stream()));
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(free_bytes(), free_before);
  EXPECT_EQ(native(driver().mem_free(ptr)), 1);
}

// Measured.
TEST_P(Pools, StreamOrderedMemoryIsFreedOnce) {
  const auto ptr = allocate(1_MiB);
  ASSERT_TRUE(driver().mem_free_async(ptr, stream()));

  EXPECT_EQ(native(driver().mem_free_async(ptr, stream())), 1);
}

// Measured.
TEST_P(Pools, AnUnknownAddressIsNotFreedOnAStream) {
  EXPECT_EQ(native(driver().mem_free_async(kUnknown, stream())), 1);
}

// Documented: any stream may free, once it is ordered after the use.
TEST_P(Pools, MemoryIsFreedOnAnotherStream) {
  const auto ptr = allocate(1_MiB);
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  const auto other = new_stream();

  EXPECT_TRUE(driver().mem_free_async(ptr, other));
  EXPECT_TRUE(driver().stream_synchronize(other));
}

// Measured: cuIpcGetMemHandle of cuMemAllocAsync memory is 1.
TEST_P(Pools, StreamOrderedMemoryIsNotExported) {
  const auto ptr = allocate(1_MiB);

  EXPECT_EQ(native(driver().ipc_get_mem_handle(ptr)), 1);
  free(ptr);
}

// Measured.
TEST_P(Pools, TheRangeOfStreamOrderedMemoryIsItsAllocation) {
  const auto ptr = allocate(1_MiB);

  const auto range = must(driver().mem_get_address_range(ptr + 1000));
  EXPECT_EQ(range.base, ptr);
  EXPECT_EQ(range.size, 1_MiB);
  free(ptr);
}

// Measured.
TEST_P(Pools, StreamOrderedMemoryRunsOut) {
  const auto total = must(driver().mem_get_info()).total;

  for (const auto size : {total + 1, std::uint64_t{1} << 60}) {
    EXPECT_EQ(native(driver().mem_alloc_async(size, stream())), 2) << size;
    EXPECT_EQ(native(driver().mem_alloc_from_pool_async(size, pool(), stream())), 2) << size;
  }
}

// Documented: maxSize is the largest that the pool gets.
TEST_P(Pools, APoolGrowsToItsMaximum) {
  const auto small = must(driver().mem_pool_create(64_MiB));
  const auto ptr = must(driver().mem_alloc_from_pool_async(32_MiB, small, stream()));

  EXPECT_EQ(native(driver().mem_alloc_from_pool_async(64_MiB, small, stream())), 2);
  free(ptr);
  EXPECT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_TRUE(driver().mem_pool_destroy(small));
}

// Measured: of 1 byte and of 33 MiB.
TEST_P(Pools, APoolsMaximumIsRoundedUpTo32MiB) {
  for (const auto& [asked, given] :
       {std::pair{std::uint64_t{1}, 32_MiB}, std::pair{33_MiB, 64_MiB}}) {
    const auto small = must(driver().mem_pool_create(asked));
    const auto ptr = must(driver().mem_alloc_from_pool_async(given, small, stream()));
    free(ptr);
    ASSERT_TRUE(driver().stream_synchronize(stream()));

    EXPECT_EQ(native(driver().mem_alloc_from_pool_async(given + 1_MiB, small, stream())), 2);
    EXPECT_TRUE(driver().mem_pool_destroy(small));
  }
}

// Documented: the default pool is the device's.
TEST_P(Pools, ADeviceHasOneDefaultPool) {
  const auto first = must(driver().device_get_default_mem_pool());

  EXPECT_NE(first.value, 0u);
  EXPECT_EQ(must(driver().device_get_default_mem_pool()), first);
  EXPECT_NE(pool(), first);
}

// Documented: it cannot be destroyed. The code is measured.
TEST_P(Pools, TheDefaultPoolIsNotDestroyed) {
  EXPECT_EQ(native(driver().mem_pool_destroy(must(driver().device_get_default_mem_pool()))), 1);
}

// Documented: cuMemAllocAsync takes from it.
TEST_P(Pools, AllocationsWithoutAPoolComeFromTheDefaultOne) {
  const auto from = must(driver().device_get_default_mem_pool());
  const auto used = get(from, PoolAttribute::used_current);

  const auto ptr = must(driver().mem_alloc_async(3_MiB, stream()));
  EXPECT_EQ(get(from, PoolAttribute::used_current) - used, 3_MiB);
  free(ptr);
}

// Documented: the threshold's default is 0, and the policies are enabled.
TEST_P(Pools, AttributesBeginAsDocumented) {
  EXPECT_EQ(get(PoolAttribute::release_threshold), 0u);
  EXPECT_EQ(get(PoolAttribute::reuse_follow_event_dependencies), 1u);
  EXPECT_EQ(get(PoolAttribute::reuse_allow_opportunistic), 1u);
  EXPECT_EQ(get(PoolAttribute::reuse_allow_internal_dependencies), 1u);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
  EXPECT_EQ(get(PoolAttribute::reserved_high), 0u);
  EXPECT_EQ(get(PoolAttribute::used_current), 0u);
  EXPECT_EQ(get(PoolAttribute::used_high), 0u);
}

// Documented: they can be set.
TEST_P(Pools, AttributesAreKept) {
  set(PoolAttribute::release_threshold, 5_GiB);
  set(PoolAttribute::reuse_allow_opportunistic, 0);

  EXPECT_EQ(get(PoolAttribute::release_threshold), 5_GiB);
  EXPECT_EQ(get(PoolAttribute::reuse_allow_opportunistic), 0u);
  EXPECT_EQ(get(PoolAttribute::reuse_follow_event_dependencies), 1u);
}

// Documented: a high mark is set to 0 and to nothing else; what is current is not set.
TEST_P(Pools, HighMarksAreResetOnly) {
  const auto try_to = [&](PoolAttribute attribute, std::uint64_t value) {
    return native(driver().mem_pool_set_attribute(pool(), attribute, value));
  };
  EXPECT_EQ(try_to(PoolAttribute::reserved_high, 0), 0);
  EXPECT_EQ(try_to(PoolAttribute::used_high, 0), 0);
  EXPECT_EQ(try_to(PoolAttribute::reserved_high, 1), 1);
  EXPECT_EQ(try_to(PoolAttribute::used_high, 1), 1);
  EXPECT_EQ(try_to(PoolAttribute::reserved_current, 0), 1);
  EXPECT_EQ(try_to(PoolAttribute::used_current, 0), 1);
}

// Documented: used is what is allocated, and its high mark the most since it was reset.
TEST_P(Pools, UsedBytesFollowAllocations) {
  const auto small = allocate(2_MiB);
  const auto large = allocate(6_MiB);
  EXPECT_EQ(get(PoolAttribute::used_current), 8_MiB);

  free(large);
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(get(PoolAttribute::used_current), 2_MiB);
  EXPECT_EQ(get(PoolAttribute::used_high), 8_MiB);

  set(PoolAttribute::used_high, 0);
  EXPECT_EQ(get(PoolAttribute::used_high), 2_MiB);
  free(small);
}

// Measured: exactly, though neighbours lie at multiples of 512.
TEST_P(Pools, UsedBytesAreThoseAskedFor) {
  const auto one = allocate(1);
  const auto more = allocate(513);

  EXPECT_EQ(get(PoolAttribute::used_current), 514u);
  free(one);
  EXPECT_EQ(get(PoolAttribute::used_current), 513u);
  free(more);
}

// Measured: the next one follows at a multiple of 512.
TEST_P(Pools, StreamOrderedAllocationsLieSideBySide) {
  for (const auto& [size, apart] :
       {std::pair{std::uint64_t{1}, std::uint64_t{512}}, std::pair{std::uint64_t{513}, 1_KiB},
        std::pair{4_KiB, 4_KiB}, std::pair{1_MiB + 1, 1_MiB + 512}}) {
    const auto fresh = must(driver().mem_pool_create());
    const auto one = must(driver().mem_alloc_from_pool_async(size, fresh, stream()));
    const auto two = must(driver().mem_alloc_from_pool_async(size, fresh, stream()));
    EXPECT_EQ(two.value - one.value, apart) << size;
    free(one);
    free(two);
    EXPECT_TRUE(driver().mem_pool_destroy(fresh));
  }
}

// Measured: a pool's memory is one row of pieces of 32 MiB; a new one goes on where the last ends.
TEST_P(Pools, APoolGrowsByPiecesOf32MiB) {
  const auto free_before = free_bytes();
  const auto small = allocate(1);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 32_MiB);
  EXPECT_EQ(free_before - free_bytes(), 32_MiB);

  const auto more = allocate(20_MiB);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 32_MiB);
  const auto large = allocate(40_MiB);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  for (const auto ptr : {small, more, large}) free(ptr);
}

// driver.hpp: held bytes are those that cuMemGetInfo shows, also of pools.
TEST_P(Pools, HeldBytesFollowWhatPoolsReserve) {
  // From here on its bytes are counted, and of those what it kept from before.
  must(driver().device_get_default_mem_pool());
  const auto free_before = free_bytes();
  const auto held = driver().held_bytes();
  const auto ptr = allocate(40_MiB);
  const auto other = must(driver().mem_alloc_async(40_MiB, stream()));

  EXPECT_GE(driver().held_bytes() - held, 40_MiB);
  EXPECT_EQ(driver().held_bytes() - held, free_before - free_bytes());
  free(ptr);
  free(other);
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(driver().held_bytes() - held, free_before - free_bytes());
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(EveryDevice, Pools, testing::Values("sim", "cuda"), name_of_kind);

}  // namespace emm
