#include "contract/fixture.hpp"

namespace emm {

void DriverContract::SetUp() { reopen(GetParam()); }

void DriverContract::reopen(const char* spec) {
  auto platform = open_platform(spec, {});
  if (!platform && platform.error().code == Errc::no_device)
    GTEST_SKIP() << describe(platform.error());
  ASSERT_TRUE(platform) << describe(platform.error());
  device_ = {};
  platform_ = std::move(*platform);
  reopen();
}

void DriverContract::TearDown() {
  for (const auto stream : streams_) EXPECT_TRUE(driver().stream_destroy(stream));
  for (const auto event : events_) EXPECT_TRUE(driver().event_destroy(event));
}

StreamHandle DriverContract::new_stream(StreamKind kind) {
  streams_.push_back(must(driver().stream_create(kind)));
  return streams_.back();
}

EventHandle DriverContract::new_event() {
  events_.push_back(must(driver().event_create()));
  return events_.back();
}

std::uint8_t DriverContract::byte_at(DevicePtr ptr) {
  std::byte byte{};
  EXPECT_TRUE(driver().memcpy_dtoh({&byte, 1}, ptr));
  return static_cast<std::uint8_t>(byte);
}

void DriverContract::reopen() {
  auto device = platform_->open(0);
  ASSERT_TRUE(device) << describe(device.error());
  device_ = std::move(*device);
}

INSTANTIATE_TEST_SUITE_P(EveryDevice, DriverContract, testing::Values("sim", "cuda"), name_of_kind);

}  // namespace emm
