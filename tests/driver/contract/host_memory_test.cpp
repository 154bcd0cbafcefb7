#include <sys/mman.h>

#include <algorithm>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

DevicePtr same_address(const std::byte* ptr) { return {reinterpret_cast<std::uintptr_t>(ptr)}; }

/// Pages of this process that nobody registered.
class Pages {
 public:
  explicit Pages(std::uint64_t size)
      : size_(size),
        memory_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(memory_, size_); }
  HostPtr get() const { return static_cast<HostPtr>(memory_); }

 private:
  std::uint64_t size_;
  void* memory_;
};

// Measured: with no flags, dev==host.
TEST_P(DriverContract, HostMemoryHasOneAddressOnBothSides) {
  const auto ptr = driver().mem_host_alloc(4_KiB, {});
  ASSERT_TRUE(ptr);

  const auto device = driver().mem_host_get_device_pointer(*ptr);
  ASSERT_TRUE(device);
  EXPECT_EQ(*device, same_address(*ptr));
  EXPECT_TRUE(driver().mem_free_host(*ptr));
}

// Documented: cuMemHostAlloc: directly accessible by the device.
TEST_P(DriverContract, HostMemoryIsReadAndWrittenByBothSides) {
  const auto ptr =
      must(driver().mem_host_alloc(64_KiB, {.mapped = true, .portable = true, .wc = true}));
  const auto device = must(driver().mem_host_get_device_pointer(ptr));

  std::fill_n(ptr, 64_KiB, std::byte{7});
  std::byte back[16] = {};
  EXPECT_TRUE(driver().memcpy_dtoh(back, device + 60_KiB));
  EXPECT_EQ(back[15], std::byte{7});

  EXPECT_TRUE(driver().memset_d8(device, 9, 64_KiB));
  EXPECT_EQ(ptr[64_KiB - 1], std::byte{9});
  EXPECT_TRUE(driver().mem_free_host(ptr));
}

// Measured: 0.
TEST_P(DriverContract, HostMemoryOfNothingSucceeds) {
  const auto ptr = driver().mem_host_alloc(0, {});

  ASSERT_TRUE(ptr);
  EXPECT_TRUE(driver().mem_free_host(*ptr));
}

// Measured: cuMemHostAlloc 1<<50 is 2.
TEST_P(DriverContract, HostMemoryRunsOut) {
  EXPECT_EQ(native(driver().mem_host_alloc(std::uint64_t{1} << 50, {})), 2);
}

// Measured: cuMemFreeHost(nullptr) is 0, again 1.
TEST_P(DriverContract, HostMemoryIsFreedOnceAndNullAlways) {
  const auto ptr = must(driver().mem_host_alloc(4_KiB, {}));

  EXPECT_TRUE(driver().mem_free_host(nullptr));
  EXPECT_TRUE(driver().mem_free_host(ptr));
  EXPECT_EQ(native(driver().mem_free_host(ptr)), 1);
}

// Measured: cuMemFree of host pointer is 1, cuMemHostUnregister of cuMemHostAlloc memory is 1.
TEST_P(DriverContract, HostMemoryIsFreedByItsOwnCallOnly) {
  const auto ptr = must(driver().mem_host_alloc(4_KiB, {}));

  EXPECT_EQ(native(driver().mem_free(same_address(ptr))), 1);
  EXPECT_EQ(native(driver().mem_host_unregister(ptr)), 1);
  EXPECT_TRUE(driver().mem_free_host(ptr));
}

// Measured: 0, dev==host, without DEVICEMAP.
TEST_P(DriverContract, RegisteredMemoryHasOneAddressOnBothSides) {
  const Pages pages(64_KiB);
  ASSERT_TRUE(driver().mem_host_register({pages.get(), 64_KiB}, {}));

  const auto device = driver().mem_host_get_device_pointer(pages.get());
  ASSERT_TRUE(device);
  EXPECT_EQ(*device, same_address(pages.get()));
  EXPECT_TRUE(driver().mem_host_unregister(pages.get()));
}

// Measured: the same again, half over, inside: 712 each.
TEST_P(DriverContract, RegisteredRangesDoNotOverlap) {
  const Pages pages(128_KiB);
  ASSERT_TRUE(driver().mem_host_register({pages.get(), 64_KiB}, {}));

  for (const HostRange range :
       {HostRange{pages.get(), 64_KiB}, HostRange{pages.get() + 32_KiB, 64_KiB},
        HostRange{pages.get() + 8_KiB, 4_KiB}}) {
    const auto refused = driver().mem_host_register(range, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().native, 712);
    EXPECT_EQ(refused.error().code, Errc::already_registered);
  }
  EXPECT_TRUE(driver().mem_host_unregister(pages.get()));
}

// Measured: address +1, 100 bytes is 0, and so is a second registration on the same page.
TEST_P(DriverContract, RegisteredRangesNeedNoAlignmentAndCanShareAPage) {
  const Pages pages(64_KiB);

  EXPECT_TRUE(driver().mem_host_register({pages.get() + 1, 100}, {}));
  EXPECT_TRUE(driver().mem_host_register({pages.get() + 2048, 100}, {}));
  EXPECT_TRUE(driver().mem_host_unregister(pages.get() + 2048));
  EXPECT_TRUE(driver().mem_host_unregister(pages.get() + 1));
}

// Measured: size 0, an unmapped address and null are 1.
TEST_P(DriverContract, OnlyMemoryThatExistsIsRegistered) {
  HostPtr gone = nullptr;
  {
    const Pages pages(64_KiB);
    gone = pages.get();
    EXPECT_EQ(native(driver().mem_host_register({pages.get(), 0}, {})), 1);
  }

  EXPECT_EQ(native(driver().mem_host_register({gone, 64_KiB}, {})), 1);
  EXPECT_EQ(native(driver().mem_host_register({nullptr, 64_KiB}, {})), 1);
}

// Measured: interior 1, base 0, again 713.
TEST_P(DriverContract, MemoryIsUnregisteredOnceByItsBase) {
  const Pages pages(64_KiB);
  ASSERT_TRUE(driver().mem_host_register({pages.get(), 64_KiB}, {}));

  EXPECT_EQ(native(driver().mem_host_unregister(pages.get() + 4_KiB)), 1);
  EXPECT_TRUE(driver().mem_host_unregister(pages.get()));
  const auto again = driver().mem_host_unregister(pages.get());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().native, 713);
  EXPECT_EQ(again.error().code, Errc::not_registered);
}

// Measured: 1.
TEST_P(DriverContract, RegisteredMemoryIsNotTheDriversToFree) {
  const Pages pages(64_KiB);
  ASSERT_TRUE(driver().mem_host_register({pages.get(), 64_KiB}, {}));

  EXPECT_EQ(native(driver().mem_free_host(pages.get())), 1);
  EXPECT_TRUE(driver().mem_host_unregister(pages.get()));
}

}  // namespace
}  // namespace emm
