#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

// Memory without an address.
namespace emm {
namespace {

// Measured: the device's free bytes go and come by the size of the handle.
TEST_P(DriverContract, AHandleTakesItsSizeAndNoMore) {
  for (const auto size : {2_MiB, 34_MiB, 1_GiB}) {
    const auto free = free_bytes();
    const auto held = driver().held_bytes();

    const auto handle = must(driver().mem_create(size));
    EXPECT_EQ(free - free_bytes(), size);
    EXPECT_EQ(driver().held_bytes() - held, size);

    EXPECT_TRUE(driver().mem_release(handle));
    EXPECT_EQ(free_bytes(), free);
    EXPECT_EQ(driver().held_bytes(), held);
  }
}

// Documented: the size is a multiple of the granularity. The code is measured.
TEST_P(DriverContract, AHandleIsAMultipleOfTheGranularity) {
  for (const auto size : {std::uint64_t{0}, std::uint64_t{1}, 1_MiB, 2_MiB + 512, 3_MiB})
    EXPECT_EQ(native(driver().mem_create(size)), 1) << size;
}

// Measured.
TEST_P(DriverContract, AHandleLargerThanTheDeviceRunsOutOfMemory) {
  const auto total = must(driver().mem_get_info()).total;

  const auto refused = driver().mem_create((total / 2_MiB + 1) * 2_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, 2);
}

// Measured: handles of 2 MiB end with 2, one or a few of them past what was free.
TEST_P(DriverContract, HandlesFillTheDevice) {
  if (platform().kind() == "sim") reopen("sim:capacity=512MiB");
  const auto fitting = free_bytes() / 2_MiB;
  std::vector<PhysicalHandle> handles;
  std::int32_t last = 0;
  while (last == 0 && handles.size() <= fitting + 1_GiB / 2_MiB) {
    const auto handle = driver().mem_create(2_MiB);
    last = native(handle);
    if (handle) handles.push_back(*handle);
  }

  EXPECT_EQ(last, 2);
  EXPECT_GE(handles.size() + 8, fitting);
  if (platform().kind() == "sim") {
    EXPECT_LE(handles.size(), fitting);
  }
  EXPECT_EQ(native(driver().mem_alloc(64_MiB)), 2);
  for (const auto handle : handles) EXPECT_TRUE(driver().mem_release(handle));
  EXPECT_TRUE(driver().mem_free(must(driver().mem_alloc(64_MiB))));
}

// Measured: cuMemRelease while mapped is 0, and free grew by the size at the unmap.
TEST_P(DriverContract, MemoryOfAReleasedHandleLivesUntilItsUnmap) {
  const auto free = free_bytes();
  const auto at = must(driver().mem_address_reserve(1_GiB));
  const auto handle = must(driver().mem_create(1_GiB));
  ASSERT_TRUE(driver().mem_map(at, 1_GiB, 0, handle));
  ASSERT_TRUE(driver().mem_set_access(at, 1_GiB, AccessFlags::read_write));
  ASSERT_TRUE(driver().memset_d8(at, 42, 1_GiB));

  ASSERT_TRUE(driver().mem_release(handle));
  EXPECT_EQ(free - free_bytes(), 1_GiB);
  EXPECT_EQ(byte_at(at + (1_GiB - 1)), 42);

  ASSERT_TRUE(driver().mem_unmap(at, 1_GiB));
  EXPECT_EQ(free_bytes(), free);
  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_TRUE(driver().mem_address_free(at, 1_GiB));
}

// Measured of one mapping; the memory of two is released by the last.
TEST_P(DriverContract, MemoryOfAReleasedHandleLivesUntilItsLastUnmap) {
  const auto free = free_bytes();
  const auto at = must(driver().mem_address_reserve(4_MiB));
  const auto handle = must(driver().mem_create(2_MiB));
  ASSERT_TRUE(driver().mem_map(at, 2_MiB, 0, handle));
  ASSERT_TRUE(driver().mem_map(at + 2_MiB, 2_MiB, 0, handle));
  ASSERT_TRUE(driver().mem_release(handle));

  ASSERT_TRUE(driver().mem_unmap(at, 2_MiB));
  EXPECT_EQ(free - free_bytes(), 2_MiB);
  EXPECT_EQ(driver().held_bytes(), 2_MiB);
  ASSERT_TRUE(driver().mem_unmap(at + 2_MiB, 2_MiB));
  EXPECT_EQ(free_bytes(), free);
  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_TRUE(driver().mem_address_free(at, 4_MiB));
}

// Documented: the memory is there as long as the handle is, without a mapping.
TEST_P(DriverContract, UnmappingKeepsTheMemoryOfALivingHandle) {
  const auto free = free_bytes();
  const auto at = must(driver().mem_address_reserve(2_MiB));
  const auto handle = must(driver().mem_create(2_MiB));
  ASSERT_TRUE(driver().mem_map(at, 2_MiB, 0, handle));

  ASSERT_TRUE(driver().mem_unmap(at, 2_MiB));
  EXPECT_EQ(free - free_bytes(), 2_MiB);

  EXPECT_TRUE(driver().mem_release(handle));
  EXPECT_EQ(free_bytes(), free);
  EXPECT_TRUE(driver().mem_address_free(at, 2_MiB));
}

}  // namespace
}  // namespace emm
