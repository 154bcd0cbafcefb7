#include <gtest/gtest.h>

#include <array>
#include <map>
#include <variant>
#include <vector>

#include "base/prng.hpp"
#include "base/units.hpp"
#include "driver/device_entry.hpp"
#include "emm/context.hpp"

namespace emm::test {
namespace {

/// A Context on a small simulated device, which answers as a real one does.
class OnASimulatedDevice : public ::testing::TestWithParam<const char*> {
 protected:
  OnASimulatedDevice() {
    device = *platform->open(0);
    context = *Context::create(device, platform->clock(), *find_manager(GetParam()));
    EXPECT_TRUE(context->initialize());
  }
  Driver& driver() { return *device.driver; }

  std::unique_ptr<Platform> platform = *open_platform("sim:capacity=64MiB,devices=2", {});
  OpenedDevice device;
  std::unique_ptr<Context> context;
};

INSTANTIATE_TEST_SUITE_P(Managers, OnASimulatedDevice,
                         ::testing::Values("default", "default:profile=numba", "cudart", "pool",
                                           "pool:backing=cumem",
                                           "pool:max=40MiB,release_threshold=8MiB"),
                         [](const auto& instance) {
                           return "Manager" + std::to_string(instance.index);
                         });

TEST_P(OnASimulatedDevice, MemoryIsApartAlignedAndKeepsItsContent) {
  Prng random(7);
  struct Piece {
    MemoryPointer memory;
    std::uint8_t fill;
  };
  std::map<std::uint64_t, Piece> pieces;
  for (int step = 0; step < 1500; ++step) {
    if (pieces.size() < 40 && random.chance(0.6)) {
      auto memory = context->memalloc(random.log_uniform(1, 1_MiB));
      ASSERT_TRUE(memory) << describe(memory.error());
      const auto fill = static_cast<std::uint8_t>(random.below(256));
      ASSERT_TRUE(driver().memset_d8(memory->device_pointer(), fill, memory->size()));
      const auto begin = memory->device_pointer().value;
      EXPECT_EQ(begin % 256, 0u);
      const auto above = pieces.lower_bound(begin);
      EXPECT_TRUE(above == pieces.end() || begin + memory->size() <= above->first);
      EXPECT_TRUE(above == pieces.begin() ||
                  std::prev(above)->first + std::prev(above)->second.memory.size() <= begin);
      pieces.emplace(begin, Piece{*std::move(memory), fill});
    } else if (!pieces.empty()) {
      const auto which =
          std::next(pieces.begin(), static_cast<std::ptrdiff_t>(random.below(pieces.size())));
      std::array<std::byte, 1> last{};
      const auto& memory = which->second.memory;
      ASSERT_TRUE(driver().memcpy_dtoh(last, memory.device_pointer() + (memory.size() - 1)));
      EXPECT_EQ(std::to_integer<std::uint8_t>(last[0]), which->second.fill);
      pieces.erase(which);
    }
  }
  pieces.clear();
  context->reset();
  EXPECT_EQ(driver().held_bytes(), 0u);
}

TEST_P(OnASimulatedDevice, AFullDeviceServesAgainOnceMemoryIsFreed) {
  std::vector<MemoryPointer> pieces;
  for (;;) {
    auto memory = context->memalloc(3_MiB);
    if (!memory) {
      EXPECT_EQ(memory.error().code, Errc::out_of_memory);
      break;
    }
    pieces.push_back(*std::move(memory));
  }
  EXPECT_GE(pieces.size(), 8u);
  const auto many = pieces.size();
  pieces.clear();
  for (std::size_t i = 0; i < many; ++i) {
    auto memory = context->memalloc(3_MiB);
    ASSERT_TRUE(memory) << i;
    pieces.push_back(*std::move(memory));
  }
}

TEST_P(OnASimulatedDevice, HostMemoryIsWritable) {  // HST-11
  auto pinned = context->memhostalloc(100, {});
  auto mapped = context->memhostalloc(100, {.mapped = true});
  ASSERT_TRUE(pinned);
  ASSERT_TRUE(mapped);
  std::get<PinnedMemory>(*pinned).host_pointer()[99] = std::byte{1};
  std::get<MappedMemory>(*mapped).host_pointer()[99] = std::byte{2};
  const auto seen = std::get<MappedMemory>(*mapped).view(99);
  std::array<std::byte, 1> byte{};
  ASSERT_TRUE(driver().memcpy_dtoh(byte, seen->device_pointer));
  EXPECT_EQ(byte[0], std::byte{2});
}

TEST_P(OnASimulatedDevice, ARegionCanBePinnedAgainAtOnce) {  // PIN-5
  std::vector<std::byte> region(8192);
  const HostRange range{.pointer = region.data(), .size = region.size()};
  for (int i = 0; i < 3; ++i) {
    const auto pinned = context->mempin(range, {.mapped = i == 1});
    ASSERT_TRUE(pinned);
    EXPECT_EQ(context->mempin(range, {}).error().code, Errc::already_registered);  // PIN-7
  }
}

TEST_P(OnASimulatedDevice, TheOffsetOfAnExportIsThatInTheDriversAllocation) {  // IPC-3, IPC-4
  const auto a = *context->memalloc(4096);
  const auto b = *context->memalloc(4096);
  if (const auto declined = context->get_ipc_handle(*a.view()); !declined) {
    EXPECT_EQ(declined.error().code, Errc::not_supported);
    EXPECT_TRUE(std::string_view(GetParam()).starts_with("pool")) << "which is mapped memory";
    return;
  }
  for (const auto* memory : {&a, &b}) {
    const auto view = *memory->view(100, 200);
    const auto handle = context->get_ipc_handle(view);
    ASSERT_TRUE(handle);
    const auto range = *driver().mem_get_address_range(view.device_pointer);
    EXPECT_EQ(handle->fields().offset, view.device_pointer - range.base);
    EXPECT_EQ(handle->fields().size, 100u);
  }
}

TEST_P(OnASimulatedDevice, TwoContextsHaveAManagerEach) {  // SEL-9
  auto other_device = *platform->open(1);
  auto other = *Context::create(other_device, platform->clock(), *find_manager(GetParam()));
  const auto memory = context->memalloc(1_MiB);
  const auto there = other->memalloc(2_MiB);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(there);
  context->reset();
  EXPECT_TRUE(there->alive());
  EXPECT_FALSE(memory->alive());
}

TEST_P(OnASimulatedDevice, NothingWorksAfterClose) {  // RST-11
  const auto memory = context->memalloc(1_MiB);
  EXPECT_TRUE(context->close());
  EXPECT_FALSE(memory->alive());
  EXPECT_EQ(context->memalloc(1_MiB).error().code, Errc::context_destroyed);
}

}  // namespace
}  // namespace emm::test
