#include "base/units.hpp"
#include "contract/pool_fixture.hpp"

// Stream-ordered memory: who gets what was freed, and when the device gets it back.
namespace emm {

void Pools::SetUp() {
  DriverContract::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  pool_ = must(driver().mem_pool_create());
  stream_ = new_stream();
}

void Pools::TearDown() {
  if (pool_.value != 0) {
    EXPECT_TRUE(driver().mem_pool_destroy(pool_));
  }
  if (stream_.value != 0) {
    EXPECT_TRUE(driver().ctx_synchronize());
  }
  DriverContract::TearDown();
}

namespace {

constexpr auto kAll = ~std::uint64_t{0};

// Documented: memory freed on a stream is the stream's to allocate at once.
TEST_P(Pools, AStreamReusesWhatItFreed) {
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  free(first);

  const auto second = allocate(8_MiB);
  EXPECT_EQ(second, first);
  EXPECT_FALSE(gate.is_done());
  free(second);
}

// Documented: without order and without the policies another stream does not get it.
TEST_P(Pools, AnotherStreamDoesNotGetWhatIsNotFreedYet) {
  set(PoolAttribute::reuse_allow_opportunistic, 0);
  set(PoolAttribute::reuse_allow_internal_dependencies, 0);
  const auto other = new_stream();
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  free(first);

  const auto second = allocate(8_MiB, other);
  EXPECT_NE(second, first);
  EXPECT_TRUE(must(driver().stream_query(other)));
  free(second, other);
}

// Documented: an event between them is order enough (reuse_follow_event_dependencies).
TEST_P(Pools, AStreamThatWaitsForTheFreeReusesIt) {
  set(PoolAttribute::reuse_allow_opportunistic, 0);
  set(PoolAttribute::reuse_allow_internal_dependencies, 0);
  const auto other = new_stream();
  const auto event = new_event();
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  free(first);
  ASSERT_TRUE(driver().event_record(event, stream()));
  ASSERT_TRUE(driver().stream_wait_event(other, event));

  const auto second = allocate(8_MiB, other);
  EXPECT_EQ(second, first);
  free(second, other);
}

// Documented: an event that was recorded before the free is no order.
TEST_P(Pools, AnEventBeforeTheFreeIsNoOrder) {
  set(PoolAttribute::reuse_allow_opportunistic, 0);
  set(PoolAttribute::reuse_allow_internal_dependencies, 0);
  const auto other = new_stream();
  const auto event = new_event();
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  ASSERT_TRUE(driver().event_record(event, stream()));
  free(first);
  ASSERT_TRUE(driver().stream_wait_event(other, event));

  const auto second = allocate(8_MiB, other);
  EXPECT_NE(second, first);
  free(second, other);
}

// Documented: without the policy an event is not looked at.
TEST_P(Pools, WithoutThePolicyAnEventIsNoReasonToReuse) {
  set(PoolAttribute::reuse_follow_event_dependencies, 0);
  set(PoolAttribute::reuse_allow_opportunistic, 0);
  set(PoolAttribute::reuse_allow_internal_dependencies, 0);
  const auto other = new_stream();
  const auto event = new_event();
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  free(first);
  ASSERT_TRUE(driver().event_record(event, stream()));
  ASSERT_TRUE(driver().stream_wait_event(other, event));

  const auto second = allocate(8_MiB, other);
  EXPECT_NE(second, first);
  free(second, other);
}

// Documented: a free that is done is anyone's to reuse (reuse_allow_opportunistic).
TEST_P(Pools, AnyStreamReusesWhatIsFreedAndDone) {
  set(PoolAttribute::release_threshold, kAll);
  set(PoolAttribute::reuse_allow_internal_dependencies, 0);
  const auto first = allocate(8_MiB);
  free(first);
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  const auto other = new_stream();
  const auto second = allocate(8_MiB, other);
  EXPECT_EQ(second, first);
  free(second, other);
}

// Measured, with reuse_allow_internal_dependencies: where a pool can grow no order is inserted.
TEST_P(Pools, APoolGrowsBeforeAnAllocationWaits) {
  set(PoolAttribute::reuse_allow_opportunistic, 0);
  const auto other = new_stream();
  const auto fill = allocate(24_MiB);
  Gate gate(driver(), stream());
  const auto first = allocate(8_MiB);
  free(first);

  const auto second = allocate(8_MiB, other);
  EXPECT_NE(second, first);
  EXPECT_TRUE(must(driver().stream_query(other))) << "the allocation does not wait for the free";
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  free(second, other);
  free(fill);
}

// Documented: where no more memory can be had, the driver inserts the order that is missing
// (reuse_allow_internal_dependencies).
TEST_P(Pools, OrderIsInsertedWhereThePoolCannotGrow) {
  const auto small = must(driver().mem_pool_create(32_MiB));
  ASSERT_TRUE(driver().mem_pool_set_attribute(small, PoolAttribute::reuse_allow_opportunistic, 0));
  const auto other = new_stream();
  Gate gate(driver(), stream());
  const auto first = must(driver().mem_alloc_from_pool_async(32_MiB, small, stream()));
  free(first);

  const auto second = must(driver().mem_alloc_from_pool_async(32_MiB, small, other));
  EXPECT_EQ(second, first);
  EXPECT_FALSE(must(driver().stream_query(other))) << "the allocation waits for the free";
  free(second, other);
  EXPECT_TRUE(driver().mem_pool_destroy(small));
}

// Documented: more than the threshold is released at the next synchronisation; 0 is the default.
TEST_P(Pools, IdleMemoryIsReleasedAtASynchronisation) {
  const auto free_before = free_bytes();
  free(allocate(64_MiB));
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
  EXPECT_EQ(free_bytes(), free_before);
  EXPECT_EQ(get(PoolAttribute::reserved_high), 64_MiB);
}

// Documented: the same of an event's synchronisation.
TEST_P(Pools, IdleMemoryIsReleasedAtAnEventsSynchronisation) {
  const auto event = new_event();
  free(allocate(64_MiB));
  ASSERT_TRUE(driver().event_record(event, stream()));
  ASSERT_TRUE(driver().event_synchronize(event));

  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
}

// Documented: the same of the context's.
TEST_P(Pools, IdleMemoryIsReleasedAtTheContextsSynchronisation) {
  free(allocate(64_MiB));
  ASSERT_TRUE(driver().ctx_synchronize());

  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
}

// Measured.
TEST_P(Pools, AskingAStreamReleasesNothing) {
  free(allocate(64_MiB));
  ASSERT_TRUE(comes_true([&] { return driver().stream_query(stream()); }));

  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
}

// Documented: up to the threshold memory is kept.
TEST_P(Pools, IdleMemoryUnderTheThresholdIsKept) {
  set(PoolAttribute::release_threshold, kAll);
  const auto free_before = free_bytes();
  free(allocate(64_MiB));
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  EXPECT_EQ(get(PoolAttribute::used_current), 0u);
  EXPECT_EQ(free_before - free_bytes(), 64_MiB);
}

// Measured: a synchronisation leaves no more than the threshold, in pieces of 32 MiB.
TEST_P(Pools, NoMoreThanTheThresholdIsKept) {
  for (const auto& [threshold, kept] :
       {std::pair{0_MiB, 0_MiB}, std::pair{64_MiB, 64_MiB}, std::pair{200_MiB, 192_MiB}}) {
    set(PoolAttribute::release_threshold, threshold);
    free(allocate(256_MiB));
    ASSERT_TRUE(driver().stream_synchronize(stream()));
    EXPECT_EQ(get(PoolAttribute::reserved_current), kept);
  }
}

// Documented: cuMemPoolTrimTo releases down to what is to be kept.
TEST_P(Pools, TrimmingReleasesIdleMemory) {
  set(PoolAttribute::release_threshold, kAll);
  const auto free_before = free_bytes();
  const auto one = allocate(64_MiB);
  const auto two = allocate(64_MiB);
  free(one);
  free(two);
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 128_MiB));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 128_MiB);
  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 64_MiB));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 0));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 0u);
  EXPECT_EQ(free_bytes(), free_before);
}

// Measured: a pool is trimmed by 32 MiB at a time, and keeps no less than it is to.
TEST_P(Pools, TrimmingKeepsPiecesOf32MiB) {
  set(PoolAttribute::release_threshold, kAll);
  free(allocate(128_MiB));
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 33_MiB));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 1));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 32_MiB);
}

// Measured: the pieces of a freed block that no other lies in go back, though they came together.
TEST_P(Pools, IdlePiecesAreReleasedOneByOne) {
  const auto one = allocate(33_MiB);
  const auto two = allocate(33_MiB);
  EXPECT_EQ(get(PoolAttribute::reserved_current), 96_MiB);

  free(one);
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  free(two);
}

// Documented: memory in use is not released.
TEST_P(Pools, TrimmingKeepsWhatIsUsed) {
  const auto ptr = allocate(64_MiB);
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 0));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
  free(ptr);
}

// Documented: a free whose completion was not observed can count as outstanding.
TEST_P(Pools, TrimmingKeepsWhatIsNotFreedYet) {
  Gate gate(driver(), stream());
  free(allocate(64_MiB));

  ASSERT_TRUE(driver().mem_pool_trim_to(pool(), 0));
  EXPECT_EQ(get(PoolAttribute::reserved_current), 64_MiB);
}

// Documented: a pool's resources go when nothing is allocated from it any more.
TEST_P(Pools, ADestroyedPoolsMemoryLivesUntilItIsFreed) {
  const auto free_before = free_bytes();
  const auto gone = must(driver().mem_pool_create());
  const auto ptr = must(driver().mem_alloc_from_pool_async(64_MiB, gone, stream()));
  ASSERT_TRUE(driver().memset_d8_async(ptr, 42, 64_MiB, stream()));
  ASSERT_TRUE(driver().stream_synchronize(stream()));

  ASSERT_TRUE(driver().mem_pool_destroy(gone));
  EXPECT_EQ(byte_at(ptr + (64_MiB - 1)), 42);
  EXPECT_EQ(free_before - free_bytes(), 64_MiB);

  free(ptr);
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  EXPECT_EQ(free_bytes(), free_before);
}

// Documented: the same of a pool that holds idle memory only.
TEST_P(Pools, ADestroyedPoolReleasesItsIdleMemory) {
  const auto free_before = free_bytes();
  const auto gone = must(driver().mem_pool_create());
  ASSERT_TRUE(driver().mem_pool_set_attribute(gone, PoolAttribute::release_threshold, kAll));
  free(must(driver().mem_alloc_from_pool_async(64_MiB, gone, stream())));
  ASSERT_TRUE(driver().stream_synchronize(stream()));
  ASSERT_EQ(free_before - free_bytes(), 64_MiB);

  ASSERT_TRUE(driver().mem_pool_destroy(gone));
  EXPECT_EQ(free_bytes(), free_before);
}

}  // namespace
}  // namespace emm
