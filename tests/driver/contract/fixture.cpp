#include "contract/fixture.hpp"

namespace emm {

void DriverContract::SetUp() {
  auto platform = open_platform(GetParam(), {});
  if (!platform && platform.error().code == Errc::no_device)
    GTEST_SKIP() << describe(platform.error());
  ASSERT_TRUE(platform) << describe(platform.error());
  platform_ = std::move(*platform);
  reopen();
}

void DriverContract::reopen() {
  auto device = platform_->open(0);
  ASSERT_TRUE(device) << describe(device.error());
  device_ = std::move(*device);
}

INSTANTIATE_TEST_SUITE_P(EveryDevice, DriverContract, testing::Values("sim", "cuda"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace emm
