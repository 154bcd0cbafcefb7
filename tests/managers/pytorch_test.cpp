// What the model of PyTorch's allocator does as a manager: private pools.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/device_entry.hpp"
#include "emm/context.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_statistics.hpp"

namespace emm::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr PrivatePool kDefault{}, kGraph{1}, kOther{2};

/// A manager on a simulated device, which maps and unmaps.
struct OnSim {
  explicit OnSim(const std::string& spec, std::vector<std::string> adaptors = {}) {
    context = *Context::create(device, platform->clock(), *find_manager(spec, adaptors));
    EXPECT_TRUE(context->initialize());
  }
  MemoryManager& manager() { return context->memory_manager(); }
  MemoryPointer memory(std::uint64_t size) { return *manager().memalloc(size); }
  std::uint64_t reserved() { return *manager().statistics().reserved_bytes.current; }

  std::unique_ptr<Platform> platform = *open_platform("sim:capacity=1GiB", {});
  OpenedDevice device = *platform->open(0);
  std::unique_ptr<Context> context;
};

TEST(PytorchManager, LendsNothingOfAPrivatePoolToOthers) {
  OnSim rig("pytorch");
  ASSERT_TRUE(rig.manager().use_pool(kGraph));
  auto in_graph = rig.memory(32 * kMiB);
  const auto address = in_graph.device_pointer();
  ASSERT_TRUE(in_graph.free());

  rig.manager().use_pool(kDefault);
  EXPECT_NE(rig.memory(32 * kMiB).device_pointer(), address);
  rig.manager().use_pool(kOther);
  EXPECT_NE(rig.memory(32 * kMiB).device_pointer(), address);
  rig.manager().use_pool(kGraph);
  EXPECT_EQ(rig.memory(32 * kMiB).device_pointer(), address);
  EXPECT_EQ(rig.reserved(), 3 * 32 * kMiB);
}

TEST(PytorchManager, ReleasesAPrivatePoolWhenNothingUsesItAnyMore) {
  OnSim rig("pytorch");
  rig.manager().use_pool(kGraph);
  ASSERT_TRUE(rig.memory(32 * kMiB).free());
  rig.manager().use_pool(kDefault);

  ASSERT_TRUE(rig.manager().trim(0));
  EXPECT_EQ(rig.reserved(), 32 * kMiB) << "a graph may still be launched";
  rig.manager().end_pool(kGraph, false);
  EXPECT_EQ(rig.reserved(), 32 * kMiB) << "not before the next empty_cache()";
  ASSERT_TRUE(rig.manager().trim(0));
  EXPECT_EQ(rig.reserved(), 0u);
}

TEST(PytorchManager, ReleasesADroppedPoolAtOnce) {
  OnSim rig("pytorch");
  rig.manager().use_pool(kGraph);
  auto stays = rig.memory(32 * kMiB);
  ASSERT_TRUE(rig.memory(64 * kMiB).free());
  rig.manager().use_pool(kDefault);

  rig.manager().end_pool(kGraph, true);

  EXPECT_EQ(rig.reserved(), 32 * kMiB);
  ASSERT_TRUE(stays.free());
}

TEST(PytorchManager, EndsItsPrivatePoolsWithAReset) {
  OnSim rig("pytorch:expandable_segments=True");
  rig.manager().use_pool(kGraph);
  const auto in_graph = rig.memory(32 * kMiB);

  rig.manager().reset();

  EXPECT_EQ(rig.device.driver->held_bytes(), 0u);
  EXPECT_FALSE(in_graph.alive());
}

TEST(PytorchManager, IsReachedThroughAnAdaptor) {
  OnSim rig("pytorch", {"statistics"});

  EXPECT_TRUE(rig.manager().use_pool(kGraph));
}

TEST(OtherManagers, HaveNoPrivatePools) {
  for (const auto* const name : {"default", "pool", "cupy", "bfc"}) {
    OnSim rig(name);
    EXPECT_FALSE(rig.manager().use_pool(kGraph)) << name;
  }
}

}  // namespace
}  // namespace emm::test
