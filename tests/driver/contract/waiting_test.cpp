#include <sys/mman.h>

#include "base/units.hpp"
#include "contract/fixture.hpp"

// Which calls wait for work that runs on another stream. Measured with a kernel of 100 ms; here
// with a host function that goes on until it is let go.
namespace emm {
namespace {

// Measured: cuMemAlloc of 1 MiB and of 64 MiB does not; cuMemFree of both does.
TEST_P(DriverContract, AllocatingDoesNotWaitForWork) {
  DevicePtr small, large;
  expect_does_not_wait([&] {
    small = must(driver().mem_alloc(1_MiB));
    large = must(driver().mem_alloc(64_MiB));
  });
  EXPECT_TRUE(driver().mem_free(small));
  EXPECT_TRUE(driver().mem_free(large));
}

// Measured: cuMemFree waits.
TEST_P(DriverContract, FreeingWaitsForWork) {
  for (const auto size : {1_MiB, 64_MiB}) {
    const auto ptr = must(driver().mem_alloc(size));
    expect_waits([&] { EXPECT_TRUE(driver().mem_free(ptr)); });
  }
}

// Measured.
TEST_P(DriverContract, FreeingNullDoesNotWaitForWork) {
  expect_does_not_wait([&] { EXPECT_TRUE(driver().mem_free({0})); });
}

// Measured.
TEST_P(DriverContract, FreeingManagedMemoryWaitsForWork) {
  const auto ptr = must(driver().mem_alloc_managed(1_MiB, AttachFlags::global));
  expect_waits([&] { EXPECT_TRUE(driver().mem_free(ptr)); });
}

// Measured: cuMemHostAlloc does not, cuMemFreeHost does.
TEST_P(DriverContract, AllocatingHostMemoryDoesNotWaitForWork) {
  HostPtr ptr = nullptr;
  expect_does_not_wait([&] { ptr = must(driver().mem_host_alloc(4_KiB, {})); });
  EXPECT_TRUE(driver().mem_free_host(ptr));
}

// Measured: cuMemFreeHost waits.
TEST_P(DriverContract, FreeingHostMemoryWaitsForWork) {
  const auto ptr = must(driver().mem_host_alloc(4_KiB, {}));
  expect_waits([&] { EXPECT_TRUE(driver().mem_free_host(ptr)); });
}

// Measured: cuMemHostRegister does not, cuMemHostUnregister does.
TEST_P(DriverContract, UnregisteringWaitsForWorkAndRegisteringDoesNot) {
  auto* const pages = static_cast<HostPtr>(
      mmap(nullptr, 64_KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  expect_does_not_wait([&] { EXPECT_TRUE(driver().mem_host_register({pages, 64_KiB}, {})); });
  expect_waits([&] { EXPECT_TRUE(driver().mem_host_unregister(pages)); });
  munmap(pages, 64_KiB);
}

// Measured: cuMemCreate, cuMemMap, cuMemSetAccess, an alias, cuMemUnmap and cuMemRelease do not.
TEST_P(DriverContract, VirtualMemoryDoesNotWaitForWork) {
  const auto at = must(driver().mem_address_reserve(4_MiB));
  expect_does_not_wait([&] {
    const auto handle = must(driver().mem_create(2_MiB));
    for (const auto ptr : {at, at + 2_MiB}) {
      EXPECT_TRUE(driver().mem_map(ptr, 2_MiB, 0, handle));
      EXPECT_TRUE(driver().mem_set_access(ptr, 2_MiB, AccessFlags::read_write));
    }
    EXPECT_TRUE(driver().mem_unmap(at, 4_MiB));
    EXPECT_TRUE(driver().mem_release(handle));
  });
  EXPECT_TRUE(driver().mem_address_free(at, 4_MiB));
}

// Measured.
TEST_P(DriverContract, ReservingAddressesDoesNotWaitForWork) {
  expect_does_not_wait([&] {
    const auto at = must(driver().mem_address_reserve(2_MiB));
    EXPECT_TRUE(driver().mem_address_free(at, 2_MiB));
  });
}

// Measured: cuMemAllocAsync and cuMemFreeAsync on another stream do not.
TEST_P(DriverContract, StreamOrderedMemoryDoesNotWaitForWork) {
  const auto stream = new_stream();
  expect_does_not_wait([&] {
    const auto ptr = must(driver().mem_alloc_async(1_MiB, stream));
    EXPECT_TRUE(driver().mem_free_async(ptr, stream));
  });
}

// Measured: unlike cuMemFree of cuMemAlloc memory it does not.
TEST_P(DriverContract, FreeingStreamOrderedMemoryByMemFreeDoesNotWaitForWork) {
  const auto stream = new_stream();
  const auto ptr = must(driver().mem_alloc_async(1_MiB, stream));
  ASSERT_TRUE(driver().stream_synchronize(stream));
  expect_does_not_wait([&] { EXPECT_TRUE(driver().mem_free(ptr)); });
}

// Measured.
TEST_P(DriverContract, MakingTrimmingAndDestroyingAPoolDoesNotWaitForWork) {
  expect_does_not_wait([&] {
    const auto pool = must(driver().mem_pool_create());
    EXPECT_TRUE(driver().mem_pool_trim_to(pool, 0));
    EXPECT_TRUE(driver().mem_pool_destroy(pool));
  });
}

// Measured: cuEventRecord on another stream, cuEventQuery and cuStreamCreate do not. Documented:
// nor do cuEventDestroy and cuStreamDestroy.
TEST_P(DriverContract, StreamsAndEventsDoNotWaitForWork) {
  expect_does_not_wait([&] {
    const auto stream = must(driver().stream_create(StreamKind::non_blocking));
    const auto event = must(driver().event_create());
    EXPECT_TRUE(driver().event_record(event, stream));
    EXPECT_TRUE(driver().event_query(event));
    EXPECT_TRUE(driver().stream_wait_event(stream, event));
    EXPECT_TRUE(driver().event_destroy(event));
    EXPECT_TRUE(driver().stream_destroy(stream));
  });
}

// Measured: cuMemGetInfo and cuIpcGetMemHandle do not.
TEST_P(DriverContract, QuestionsDoNotWaitForWork) {
  const auto ptr = must(driver().mem_alloc(1_MiB));
  expect_does_not_wait([&] {
    EXPECT_TRUE(driver().mem_get_info());
    EXPECT_TRUE(driver().ipc_get_mem_handle(ptr));
    EXPECT_TRUE(driver().mem_get_address_range(ptr));
  });
  EXPECT_TRUE(driver().mem_free(ptr));
}

}  // namespace
}  // namespace emm
