#include "base/units.hpp"
#include "contract/fixture.hpp"

// Handles that name nothing.
namespace emm {
namespace {

constexpr std::int32_t kInvalidHandle = 400;

// Documented: CUDA_ERROR_INVALID_HANDLE.
TEST_P(DriverContract, NoEventIsAnInvalidHandle) {
  EXPECT_EQ(native(driver().event_record({}, new_stream())), kInvalidHandle);
  EXPECT_EQ(native(driver().event_query({})), kInvalidHandle);
  EXPECT_EQ(native(driver().event_synchronize({})), kInvalidHandle);
  EXPECT_EQ(native(driver().event_destroy({})), kInvalidHandle);
  EXPECT_EQ(native(driver().stream_wait_event(new_stream(), {})), kInvalidHandle);
}

// Measured.
TEST_P(DriverContract, TheDefaultStreamsAreNotDestroyed) {
  for (const auto stream : {StreamHandle{}, kLegacyStream, kPerThreadStream})
    EXPECT_EQ(native(driver().stream_destroy(stream)), kInvalidHandle) << stream.value;
}

// Measured.
TEST_P(DriverContract, MappedMemoryWithoutAccessIsNotFilled) {
  const auto at = must(driver().mem_address_reserve(2_MiB));
  const auto handle = must(driver().mem_create(2_MiB));
  ASSERT_TRUE(driver().mem_map(at, 2_MiB, 0, handle));

  EXPECT_EQ(native(driver().memset_d8(at, 0, 2_MiB)), 1);
  std::byte byte{};
  EXPECT_EQ(native(driver().memcpy_dtoh({&byte, 1}, at)), 1);
  EXPECT_TRUE(driver().mem_unmap(at, 2_MiB));
  EXPECT_TRUE(driver().mem_address_free(at, 2_MiB));
  EXPECT_TRUE(driver().mem_release(handle));
}

}  // namespace
}  // namespace emm
