#include <string>
#include <vector>

#include "base/units.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

TEST(OpenPlatform, IsAnH200WhereNothingIsSaid) {
  const auto platform = open_platform("sim", {});
  ASSERT_TRUE(platform);
  auto device = *(*platform)->open(0);

  // Measured: free at start 149,557,477,376 of 150,109,880,320 bytes.
  EXPECT_EQ(*device.driver->mem_get_info(),
            (MemoryInfo{.free = 149'557'477'376, .total = 150'109'880'320}));
  EXPECT_EQ((*platform)->kind(), "sim");
  EXPECT_EQ((*platform)->clock().kind(), "simulated");
}

TEST(OpenPlatform, TakesTheCapacityOfTheOptionsElseTheDefault) {
  const auto capacity = [](std::string_view spec) {
    auto platform = *open_platform(spec, {.capacity = 3_GiB, .devices = 2});
    return *platform->open(1)->driver->mem_get_info();
  };

  EXPECT_EQ(capacity("sim"), (MemoryInfo{.free = 3_GiB, .total = 3_GiB}));
  EXPECT_EQ(capacity("sim:capacity=1GiB"), (MemoryInfo{.free = 1_GiB, .total = 1_GiB}));
  EXPECT_EQ(capacity("sim:capacity=1GiB,reserved=1MiB"),
            (MemoryInfo{.free = 1_GiB - 1_MiB, .total = 1_GiB}));
}

TEST(OpenPlatform, GivesTheSameDevicesForItsSpec) {
  for (const auto* spec : {"sim", "sim:capacity=8GiB,devices=3,seed=7,costs=none,peers=none",
                           "sim:order=random", "sim:order=early"}) {
    const auto first = *open_platform(spec, {});
    const auto second = *open_platform(first->spec(), {.capacity = 1_GiB, .devices = 9});

    EXPECT_EQ(first->spec(), second->spec());
    EXPECT_EQ(first->device_count(), second->device_count());
  }
  EXPECT_EQ((*open_platform("sim:capacity=8GiB", {}))->spec(),
            "sim:capacity=8589934592,costs=h200,devices=1,seed=0");
}

TEST(OpenPlatform, SaysWhatIsWrongWithItsOptions) {
  const auto words = [](std::string_view spec) {
    const auto platform = open_platform(spec, {});
    EXPECT_FALSE(platform) << spec;
    EXPECT_EQ(platform.error().code, Errc::usage) << spec;
    return describe(platform.error());
  };

  EXPECT_EQ(words("gpu"), "unknown device 'gpu': known are auto, sim, cuda");
  EXPECT_EQ(words("sim:size=1"),
            "device sim: unknown option 'size': known are capacity, content, costs, devices, "
            "gpu, profile, order, addresses, peers, reserved, seed");
  EXPECT_EQ(words("sim:capacity=1"), "device sim: option 'capacity' is 1: expected 2MiB to 4TiB");
  EXPECT_EQ(words("sim:devices=0"), "device sim: option 'devices' is 0: expected 1 to 64");
  EXPECT_EQ(words("sim:capacity=4MiB,reserved=3MiB"),
            "device sim: option 'reserved' is 3145728: expected to leave 2MiB or more of 4194304");
}

TEST(OpenPlatform, GivesEachCardItsOwnMemory) {
  for (const auto& gpu : gpu_profiles()) {
    const auto platform = open_platform(std::string("sim:gpu=") + std::string(gpu.name), {});
    ASSERT_TRUE(platform) << gpu.name;
    const auto device = (*platform)->open(0);
    ASSERT_TRUE(device) << gpu.name;

    const auto info = device->driver->mem_get_info();

    ASSERT_TRUE(info) << gpu.name;
    EXPECT_EQ(info->total, gpu.total) << gpu.name;
    EXPECT_EQ(info->free, gpu.total - gpu.context) << gpu.name;
    EXPECT_EQ((*platform)->gpu(), &gpu);
    EXPECT_TRUE(open_platform((*platform)->spec(), {})) << "its spec opens the same";
    EXPECT_GT(gpu.multiprocessors, 0);
    EXPECT_LE(gpu.shared_of_block_optin() + gpu.shared_reserved(), gpu.shared_of_multiprocessor());
  }
  EXPECT_FALSE(open_platform("sim:gpu=abacus", {}));
}

TEST(OpenPlatform, HasNoDeviceBeyondItsLast) {
  const auto platform = *open_platform("sim:devices=2", {});

  for (const int ordinal : {-1, 2}) {
    const auto device = platform->open(ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, Errc::no_device);
  }
}

TEST(OpenPlatform, OfAutoSaysWhatWasFound) {
  std::string said;
  const auto platform = open_platform("auto", {.capacity = 1_GiB}, &said);

  ASSERT_TRUE(platform);
  EXPECT_EQ(said.substr(0, said.find(':')), "auto is " + std::string((*platform)->kind()));
}

TEST(BundledDevices, AreSimAndCuda) {
  std::vector<std::string_view> names;
  for (const auto* entry : bundled_devices()) names.push_back(entry->name);

  EXPECT_EQ(names, (std::vector<std::string_view>{"sim", "cuda"}));
}

}  // namespace
}  // namespace emm
