// What the model of PyTorch's allocators does as a manager: private pools, delayed frees,
// and page-locked memory.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/call.hpp"
#include "driver/device_entry.hpp"
#include "emm/context.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_statistics.hpp"
#include "rig.hpp"

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
  const auto memory = rig.memory(kMiB);
  EXPECT_TRUE(rig.manager().delay_free(memory.device_pointer(), 7));
}

TEST(PytorchManager, KeepsADelayedFreeBackUntilItCompletes) {
  OnSim rig("pytorch");
  auto used = rig.memory(32 * kMiB);
  const auto address = used.device_pointer();
  ASSERT_TRUE(rig.manager().delay_free(address, 7));
  ASSERT_TRUE(used.free());

  EXPECT_NE(rig.memory(32 * kMiB).device_pointer(), address);
  rig.manager().complete_free(8);
  EXPECT_NE(rig.memory(32 * kMiB).device_pointer(), address) << "that is another free";
  rig.manager().complete_free(7);
  EXPECT_EQ(rig.memory(32 * kMiB).device_pointer(), address);
  rig.manager().complete_free(7);  // a second time: nothing
}

TEST(PytorchManager, DelaysTheFreeThatWasNamedAndNoLaterOne) {
  OnSim rig("pytorch");
  auto used = rig.memory(32 * kMiB);
  const auto address = used.device_pointer();
  ASSERT_TRUE(rig.manager().delay_free(address, 7));
  ASSERT_TRUE(used.free());
  rig.manager().complete_free(7);
  ASSERT_TRUE(rig.memory(32 * kMiB).free());

  EXPECT_EQ(rig.memory(32 * kMiB).device_pointer(), address);
  EXPECT_FALSE(rig.manager().delay_free({address.value + 512}, 9)) << "nothing is there";
}

TEST(PytorchManager, WaitsForADelayedFreeWhereMemoryIsOut) {
  OnSim rig("pytorch:max_split_size_mb=64,fraction=1,total=128MiB");
  auto used = rig.memory(100 * kMiB);
  ASSERT_TRUE(rig.manager().delay_free(used.device_pointer(), 7));
  ASSERT_TRUE(used.free());

  EXPECT_TRUE(rig.manager().memalloc(120 * kMiB));
  rig.manager().complete_free(7);
  EXPECT_EQ(rig.manager().statistics().num_alloc_retries, 1u);
}

TEST(PytorchManager, HoldsALimitInBytesAsAFractionOfTheDevice) {
  OnSim rig("pytorch:limit=128MiB");
  auto used = rig.memory(100 * kMiB);

  EXPECT_FALSE(rig.manager().memalloc(30 * kMiB));
  EXPECT_TRUE(rig.manager().memalloc(28 * kMiB));
}

TEST(PytorchManager, WaitsForADelayedFreeWhereItReleasesAll) {
  OnSim rig("pytorch");
  auto used = rig.memory(32 * kMiB);
  ASSERT_TRUE(rig.manager().delay_free(used.device_pointer(), 7));
  ASSERT_TRUE(used.free());

  ASSERT_TRUE(rig.manager().trim(0));

  EXPECT_EQ(rig.reserved(), 0u);
}

TEST(PytorchManager, ForgetsWhatIsPendingWithAReset) {
  OnSim rig("pytorch");
  auto& driver = *rig.device.driver;
  const auto stream = *driver.stream_create(StreamKind::non_blocking);
  auto delayed = rig.memory(32 * kMiB), elsewhere = rig.memory(32 * kMiB);
  ASSERT_TRUE(rig.manager().delay_free(delayed.device_pointer(), 7));
  ASSERT_TRUE(delayed.free());
  ASSERT_TRUE(elsewhere.free(stream));

  rig.manager().reset();

  EXPECT_EQ(driver.held_bytes(), 0u);
  rig.manager().complete_free(7);
  EXPECT_TRUE(rig.manager().memalloc(32 * kMiB));
  ASSERT_TRUE(driver.stream_destroy(stream));
}

// The rules are those of ATen's CachingHostAllocator.
PinnedMemory pinned(Rig& rig, std::uint64_t size) {
  return std::get<PinnedMemory>(*rig.manager->memhostalloc(size, {}));
}
std::vector<std::uint64_t> asked(const Rig& rig) {
  std::vector<std::uint64_t> sizes;
  for (const auto& call : rig.driver.calls(Call::mem_host_alloc)) sizes.push_back(call.argument);
  return sizes;
}
using Sizes = std::vector<std::uint64_t>;

TEST(PytorchHostMemory, IsOfAPowerOfTwoAndUsedAgain) {
  Rig rig("pytorch");
  auto first = pinned(rig, 3000);
  const auto address = first.host_pointer();
  EXPECT_EQ(first.size(), 3000u);
  ASSERT_TRUE(first.free());

  EXPECT_EQ(pinned(rig, 4096).host_pointer(), address);
  pinned(rig, 2048);
  pinned(rig, 2049);

  EXPECT_EQ(asked(rig), (Sizes{4096, 2048}));
  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u);
  EXPECT_EQ(
      rig.manager->report(),
      "page-locked memory: 4 requests, 4.00 KiB at most live; 2 calls of cuMemHostAlloc, 6.00 "
      "KiB at most held\n");
}

TEST(PytorchHostMemory, OfOnePowerTheLastFreedIsUsedFirst) {
  Rig rig("pytorch");
  auto a = pinned(rig, 4096), b = pinned(rig, 4096);
  const auto last = b.host_pointer();
  ASSERT_TRUE(a.free());
  ASSERT_TRUE(b.free());

  EXPECT_EQ(pinned(rig, 4096).host_pointer(), last);
}

TEST(PytorchHostMemory, AboveAThresholdIsAsLargeAsAskedFor) {
  Rig rig("pytorch:pinned_max_round_threshold_mb=2");

  pinned(rig, 2 * kMiB - 1);
  pinned(rig, 2 * kMiB + 1);
  pinned(rig, 3 * kMiB);  // The block of that power that is free is smaller.

  EXPECT_EQ(asked(rig), (Sizes{2 * kMiB, 2 * kMiB + 1, 3 * kMiB}));
}

TEST(PytorchHostMemory, IsNotKeptWhereItIsTooLarge) {
  Rig rig("pytorch:pinned_max_cached_size_mb=1,count=0");

  pinned(rig, kMiB);
  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u);
  pinned(rig, kMiB + 1);

  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 1u);
  EXPECT_EQ(asked(rig), (Sizes{kMiB, kMiB + 1}));
}

TEST(PytorchHostMemory, IsCutFromAReserveSegmentFirst) {
  Rig rig("pytorch:pinned_reserve_segment_size_mb=1");
  const auto a = pinned(rig, 512), b = pinned(rig, 512 * 1024), c = pinned(rig, 512 * 1024);

  EXPECT_EQ(asked(rig), (Sizes{kMiB, 512 * 1024}));
  EXPECT_EQ(number_of(b.host_pointer()), number_of(a.host_pointer()) + 4096);
}

TEST(PytorchHostMemory, EndsWithAReset) {
  Rig rig("pytorch:pinned_reserve_segment_size_mb=1");
  const auto reserved = pinned(rig, 512), live = pinned(rig, 4 * kMiB);
  pinned(rig, 2 * kMiB);

  rig.manager->reset();

  EXPECT_FALSE(live.alive());
  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_EQ(rig.driver.bad_frees(), 0u);
}

TEST(PytorchHostMemory, MappedMemoryIsKeptApart) {
  Rig rig("pytorch");
  ASSERT_TRUE(pinned(rig, 4096).free());

  auto mapped = std::get<MappedMemory>(*rig.manager->memhostalloc(4096, {.mapped = true}));

  EXPECT_EQ(mapped.device_pointer().value,
            number_of(mapped.host_pointer()) + rig.driver.host_to_device);
  EXPECT_EQ(asked(rig), (Sizes{4096, 4096}));
}

TEST(PytorchHostMemory, OfNumbasProfileIsTheHostOnlyManagers) {
  Rig rig("pytorch:profile=numba");

  pinned(rig, 3000);

  EXPECT_EQ(asked(rig), Sizes{3000});
}

TEST(OtherManagers, HaveNoPrivatePoolsAndDelayNoFree) {
  for (const auto* const name : {"default", "pool", "cupy", "bfc"}) {
    OnSim rig(name);
    EXPECT_FALSE(rig.manager().use_pool(kGraph)) << name;
    const auto memory = rig.memory(kMiB);
    EXPECT_FALSE(rig.manager().delay_free(memory.device_pointer(), 7)) << name;
  }
}

}  // namespace
}  // namespace emm::test
