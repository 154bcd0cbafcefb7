#include "driver/decorate/call_log.hpp"

#include <array>

#include "driver/call.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

TEST_F(SimTest, ALogIsTheSameTextInEveryRun) {
  RecordingDriver recorded(driver());

  const auto ptr = *recorded.mem_alloc(4_KiB);
  const auto host = *recorded.mem_host_alloc(8_KiB, {.mapped = true, .wc = true});
  EXPECT_TRUE(recorded.mem_host_get_device_pointer(host));
  EXPECT_TRUE(recorded.memset_d32(ptr, 7, 1024));
  EXPECT_TRUE(recorded.memcpy_dtod(*recorded.mem_host_get_device_pointer(host), ptr, 512));
  EXPECT_TRUE(recorded.mem_free_host(host));
  EXPECT_TRUE(recorded.mem_free(ptr));
  EXPECT_FALSE(recorded.mem_free(ptr));
  EXPECT_TRUE(recorded.mem_get_info());
  EXPECT_TRUE(recorded.event_destroy(*recorded.event_create()));
  EXPECT_TRUE(recorded.ctx_synchronize());

  EXPECT_EQ(recorded.text(),
            "mem_alloc(4096) -> 0x1000000000000\n"
            "mem_host_alloc(8192, 6) -> 0x480000000000\n"
            "mem_host_get_device_pointer(0x480000000000) -> 0x480000000000\n"
            "memset_d32(0x1000000000000, 7, 4096)\n"
            "mem_host_get_device_pointer(0x480000000000) -> 0x480000000000\n"
            "memcpy_dtod(0x480000000000, 0x1000000000000, 512)\n"
            "mem_free_host(0x480000000000)\n"
            "mem_free(0x1000000000000)\n"
            "mem_free(0x1000000000000) -> CUDA_ERROR_INVALID_VALUE\n"
            "mem_get_info() -> 67108864\n"
            "event_create() -> 1\n"
            "event_destroy(1)\n"
            "ctx_synchronize()\n");
}

TEST_F(SimTest, ALogHoldsEachCallWithItsArguments) {
  RecordingDriver recorded(driver());
  const auto ptr = *recorded.mem_alloc(4_KiB);
  recorded.log().clear();

  EXPECT_TRUE(recorded.mem_free(ptr));

  const auto events = recorded.log().events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].call, Call::mem_free);
  EXPECT_EQ(events[0].pointer, ptr.value);
  EXPECT_EQ(events[0].native, 0);
}

}  // namespace
}  // namespace emm
