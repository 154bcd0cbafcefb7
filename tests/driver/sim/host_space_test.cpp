#include <sys/mman.h>

#include <vector>

#include "sim/fixture.hpp"

namespace emm {
namespace {

TEST_F(SimTest, HostMemoryIsZeroedAlsoWhenUsedAgain) {
  const auto first = *driver().mem_host_alloc(8_KiB, {});
  first[8_KiB - 1] = std::byte{1};
  ASSERT_TRUE(driver().mem_free_host(first));

  const auto second = *driver().mem_host_alloc(8_KiB, {});

  EXPECT_EQ(second, first) << "the smallest hole that fits is the same one";
  EXPECT_EQ(second[8_KiB - 1], std::byte{0});
}

TEST_F(SimTest, LogsShowHostMemoryAtTheSameAddressInEveryRun) {
  SimPlatform other({.capacity = 64_MiB});
  auto device = *other.open(0);

  const auto here = *driver().mem_host_alloc(4_KiB, {});
  const auto there = *device.driver->mem_host_alloc(4_KiB, {});

  EXPECT_NE(here, there);
  EXPECT_EQ(driver().log_address(here + 5), device.driver->log_address(there + 5));
  EXPECT_EQ(driver().log_address(here + 5) - driver().log_address(here), 5u);
}

TEST_F(SimTest, LogsShowManagedMemoryLikewise) {
  SimPlatform other({.capacity = 64_MiB});
  auto device = *other.open(0);
  const auto shown = [](Driver& driver) {
    const auto ptr = *driver.mem_alloc_managed(4_KiB, AttachFlags::global);
    return driver.log_address(reinterpret_cast<std::byte*>(ptr.value));
  };

  EXPECT_EQ(shown(driver()), shown(*device.driver));
}

TEST_F(SimTest, LogsShowMemoryOfOthersAsItIs) {
  std::byte own{};

  EXPECT_EQ(driver().log_address(&own), reinterpret_cast<std::uintptr_t>(&own));
  ASSERT_TRUE(driver().mem_host_alloc(4_KiB, {}));
  EXPECT_EQ(driver().log_address(&own), reinterpret_cast<std::uintptr_t>(&own));
}

TEST_F(SimTest, HostMemoryRunsOutAtATerabyte) {
#ifdef EMM_THREAD_SANITIZER
  GTEST_SKIP()
      << "ThreadSanitizer leaves 1.5 TiB of addresses, in which a terabyte finds room by luck";
#endif
  const auto half = driver().mem_host_alloc(600_GiB, {});
  ASSERT_TRUE(half);

  EXPECT_EQ(native(driver().mem_host_alloc(600_GiB, {})), 2);
  ASSERT_TRUE(driver().mem_free_host(*half));
  EXPECT_TRUE(driver().mem_host_alloc(600_GiB, {}));
}

TEST_F(SimTest, HostMemoryThatWasHandedOutIsRegisteredAlready) {
  const auto host = *driver().mem_host_alloc(8_KiB, {});

  EXPECT_EQ(native(driver().mem_host_register({host + 4_KiB, 4_KiB}, {})), 712);
}

TEST_F(SimTest, ARangeIsRegisteredWhereAllOfItExists) {
  auto* pages = static_cast<HostPtr>(
      mmap(nullptr, 256_KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(munmap(pages + 128_KiB, 64_KiB), 0);

  EXPECT_EQ(native(driver().mem_host_register({pages, 256_KiB}, {})), 1);
  EXPECT_EQ(native(driver().mem_host_register({pages, ~std::uint64_t{0}}, {})), 1);
  EXPECT_EQ(native(driver().mem_host_register({pages, 128_KiB}, {.io = true})), 801);
  EXPECT_TRUE(driver().mem_host_register({pages, 128_KiB}, {.read_only = true}));

  munmap(pages, 256_KiB);
}

}  // namespace
}  // namespace emm
