#include <array>
#include <cstring>
#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

std::vector<std::uint8_t> bytes_at(Driver& driver, DevicePtr ptr, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  EXPECT_TRUE(driver.memcpy_dtoh(std::as_writable_bytes(std::span(bytes)), ptr));
  return bytes;
}

// Documented: cuMemcpyHtoD and cuMemcpyDtoH, at any address.
TEST_P(DriverContract, WhatIsCopiedInComesBack) {
  const auto ptr = must(driver().mem_alloc(4_KiB));
  std::vector<std::uint8_t> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);

  ASSERT_TRUE(driver().memcpy_htod(ptr + 13, std::as_bytes(std::span(bytes))));

  EXPECT_EQ(bytes_at(driver(), ptr + 13, bytes.size()), bytes);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuMemsetD32.
TEST_P(DriverContract, FillsRepeatTheirValueFromWhereTheyBegin) {
  const auto ptr = must(driver().mem_alloc(4_KiB));
  ASSERT_TRUE(driver().memset_d8(ptr, 0xaa, 4_KiB));

  ASSERT_TRUE(driver().memset_d32(ptr + 8, 0x04030201, 2));

  const std::vector<std::uint8_t> expected{0xaa, 0xaa, 1, 2, 3, 4, 1, 2, 3, 4, 0xaa, 0xaa};
  EXPECT_EQ(bytes_at(driver(), ptr + 6, 12), expected);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: the address of cuMemsetD32 is a multiple of four.
TEST_P(DriverContract, FillsOfWordsAreAligned) {
  const auto ptr = must(driver().mem_alloc(4_KiB));

  EXPECT_EQ(native(driver().memset_d32(ptr + 2, 0, 1)), 1);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuMemcpyDtoD, at any address.
TEST_P(DriverContract, CopiesOnTheDeviceKeepEveryByte) {
  const auto from = must(driver().mem_alloc(4_KiB));
  const auto to = must(driver().mem_alloc(3_MiB));
  ASSERT_TRUE(driver().memset_d32(from, 0x04030201, 1024));
  ASSERT_TRUE(driver().memset_d8(to, 0, 3_MiB));

  ASSERT_TRUE(driver().memcpy_dtod(to + 5, from + 2, 6));

  EXPECT_EQ(bytes_at(driver(), to + 4, 8), (std::vector<std::uint8_t>{0, 3, 4, 1, 2, 3, 4, 0}));
  EXPECT_TRUE(driver().mem_free(from));
  EXPECT_TRUE(driver().mem_free(to));
}

// Documented: cuMemAlloc: the memory is not cleared.
TEST_P(DriverContract, MemoryThatNobodyWroteToCanBeRead) {
  const auto ptr = must(driver().mem_alloc(4_KiB));
  std::array<std::byte, 4096> bytes;

  EXPECT_TRUE(driver().memcpy_dtoh(bytes, ptr));
  EXPECT_TRUE(driver().mem_free(ptr));
}

}  // namespace
}  // namespace emm
