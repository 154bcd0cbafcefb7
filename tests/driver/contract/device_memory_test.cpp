#include <utility>
#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Measured: cuMemAlloc(0) is 1.
TEST_P(DriverContract, AllocatingNothingIsAnInvalidValue) {
  EXPECT_EQ(native(driver().mem_alloc(0)), 1);
}

// Measured: 2 of a byte over the total, of 2^60 and of SIZE_MAX.
TEST_P(DriverContract, AllocatingMoreThanThereIsRunsOutOfMemory) {
  const auto total = must(driver().mem_get_info()).total;

  for (const auto size : {total + 1, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    const auto refused = driver().mem_alloc(size);
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().native, 2) << size;
    EXPECT_EQ(refused.error().code, Errc::out_of_memory) << size;
  }
}

// Measured: addresses are multiples of 512 from 1 byte on.
TEST_P(DriverContract, AddressesAreMultiplesOf512) {
  std::vector<DevicePtr> held;
  for (const std::uint64_t size :
       {1u, 255u, 257u, 511u, 513u, 4096u, 65536u, 1048575u, 1048577u, 2097153u}) {
    const auto ptr = driver().mem_alloc(size);
    ASSERT_TRUE(ptr);
    EXPECT_EQ(ptr->value % 512, 0u) << size;
    held.push_back(*ptr);
  }
  for (const auto ptr : held) EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: next at +512 of 1 to 511 bytes, +1024 of 513, +4096, +65536 and +1048576 of 1048575.
TEST_P(DriverContract, SmallAllocationsLieSideBySide) {
  for (const std::uint64_t size : {1u, 255u, 256u, 257u, 511u, 513u, 4096u, 65536u, 1048575u}) {
    const auto first = must(driver().mem_alloc(size));
    const auto second = must(driver().mem_alloc(size));

    EXPECT_EQ(first.value % 2_MiB, 0u) << size;
    EXPECT_EQ(second - first, (size + 511) / 512 * 512) << size;
    EXPECT_TRUE(driver().mem_free(first));
    EXPECT_TRUE(driver().mem_free(second));
  }
}

// Measured: addr % 2M is 0 of 1048577 and 2097153 bytes.
TEST_P(DriverContract, LargeAllocationsBeginAtAPage) {
  for (const auto size : {1_MiB + 1, 2_MiB + 1, 3_MiB}) {
    const auto ptr = must(driver().mem_alloc(size));
    EXPECT_EQ(ptr.value % 2_MiB, 0u) << size;
    EXPECT_TRUE(driver().mem_free(ptr));
  }
}

// Measured, each in a device with no other small allocation.
TEST_P(DriverContract, AllocationsTakeWholePagesOf2MiB) {
  const std::pair<std::uint64_t, std::uint64_t> taken[] = {
      {1, 2_MiB},         {4096, 2_MiB},        {1_MiB, 2_MiB},
      {1_MiB + 1, 2_MiB}, {2_MiB, 2_MiB},       {2_MiB + 1, 4_MiB},
      {3_MiB, 4_MiB},     {32505856, 33554432}, {34603008, 35651584},
  };
  for (const auto& [size, expected] : taken) {
    const auto before = must(driver().mem_get_info()).free;
    const auto ptr = driver().mem_alloc(size);
    const auto after = must(driver().mem_get_info()).free;

    EXPECT_EQ(before - after, expected) << size;
    EXPECT_TRUE(driver().mem_free(*ptr));
    EXPECT_EQ(must(driver().mem_get_info()).free, before) << size;
  }
}

// driver.hpp: held_bytes is what cuMemGetInfo would show, without asking.
TEST_P(DriverContract, HeldBytesFollowWhatMemGetInfoShows) {
  const auto free_before = must(driver().mem_get_info()).free;
  const auto held_before = driver().held_bytes();

  std::vector<DevicePtr> held;
  for (const std::uint64_t size : {1_KiB, 2_KiB, 700_KiB, 700_KiB, 3_MiB, 10_MiB}) {
    held.push_back(must(driver().mem_alloc(size)));
    EXPECT_EQ(driver().held_bytes() - held_before, free_before - must(driver().mem_get_info()).free)
        << size;
  }
  for (const auto ptr : held) {
    EXPECT_TRUE(driver().mem_free(ptr));
    EXPECT_EQ(driver().held_bytes() - held_before,
              free_before - must(driver().mem_get_info()).free);
  }
}

// Measured: cuMemFree(0) is 0.
TEST_P(DriverContract, FreeingNullDoesNothing) { EXPECT_TRUE(driver().mem_free({0})); }

// Measured: cuMemFree again is 1.
TEST_P(DriverContract, ASecondFreeIsAnInvalidValue) {
  const auto ptr = must(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().mem_free(ptr));

  EXPECT_EQ(native(driver().mem_free(ptr)), 1);
}

// Measured: 1.
TEST_P(DriverContract, FreeingAnInteriorAddressIsAnInvalidValueAndChangesNothing) {
  const auto ptr = must(driver().mem_alloc(1_MiB));

  EXPECT_EQ(native(driver().mem_free(ptr + 512)), 1);
  EXPECT_EQ(must(driver().mem_get_address_range(ptr)).size, 1_MiB);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: cuMemFree(unknown) is 1.
TEST_P(DriverContract, FreeingAnUnknownAddressIsAnInvalidValue) {
  EXPECT_EQ(native(driver().mem_free(kUnknown)), 1);
}

// Measured: base==ptr, size 1048576, from an address inside.
TEST_P(DriverContract, TheRangeOfAnInteriorAddressIsItsAllocation) {
  const auto ptr = must(driver().mem_alloc(1_MiB));

  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1000}, 1_MiB - 1}) {
    const auto range = driver().mem_get_address_range(ptr + offset);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->base, ptr);
    EXPECT_EQ(range->size, 1_MiB);
  }
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: 500.
TEST_P(DriverContract, AnUnknownAddressHasNoRange) {
  const auto range = driver().mem_get_address_range(kUnknown);

  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().native, 500);
  EXPECT_EQ(range.error().code, Errc::not_found);
}

// Documented: cuMemGetInfo.
TEST_P(DriverContract, NoMoreIsFreeThanThereIs) {
  const auto info = driver().mem_get_info();

  ASSERT_TRUE(info);
  EXPECT_GT(info->free, 0u);
  EXPECT_LE(info->free, info->total);
}

// Measured: cuMemAllocManaged 1M GLOBAL and cuMemFree of it are 0. The host can touch it (the CUDA
// driver API's cuMemAllocManaged).
TEST_P(DriverContract, ManagedMemoryIsTheHostsToo) {
  for (const auto attach : {AttachFlags::global, AttachFlags::host}) {
    const auto ptr = driver().mem_alloc_managed(1_MiB, attach);
    ASSERT_TRUE(ptr);
    auto* bytes = reinterpret_cast<std::byte*>(ptr->value);

    bytes[1_MiB - 1] = std::byte{42};
    std::byte back{};
    EXPECT_TRUE(driver().memcpy_dtoh({&back, 1}, *ptr + (1_MiB - 1)));
    EXPECT_EQ(back, std::byte{42});
    EXPECT_TRUE(driver().mem_free(*ptr));
  }
}

// Documented: "If bytesize is 0, cuMemAllocManaged returns CUDA_ERROR_INVALID_VALUE".
TEST_P(DriverContract, ManagedMemoryOfNothingIsAnInvalidValue) {
  EXPECT_EQ(native(driver().mem_alloc_managed(0, AttachFlags::global)), 1);
}

// Measured: 1 of the flags 0 and CU_MEM_ATTACH_SINGLE.
TEST_P(DriverContract, ManagedMemoryIsAttachedToAllOrToTheHost) {
  for (const int flags : {0, 4}) {
    EXPECT_EQ(native(driver().mem_alloc_managed(1_MiB, static_cast<AttachFlags>(flags))), 1)
        << flags;
  }
}

}  // namespace
}  // namespace emm
