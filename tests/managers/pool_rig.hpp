#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "driver/call.hpp"
#include "driver/decorate/call_hook.hpp"
#include "driver/decorate/fault_injector.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "tests/emm/scripted_driver.hpp"

namespace emm::test {

/// Counts driver calls, and fails them where told.
class CountingHook final : public CallHook {
 public:
  std::int32_t before(const CallEvent& event) override {
    const auto native = faults ? faults->before(event) : 0;
    if (native != 0) ++failed[event.call];
    return native;
  }
  void after(const CallEvent& event) override {
    ++calls;
    asked += event.call == Call::mem_create || event.call == Call::mem_alloc;
    mapped += event.call == Call::mem_map;
    refused += event.native == 2;
    if (event.native != 0) ++failed[event.call];
    of_streams += event.call == Call::stream_synchronize || event.call == Call::stream_query ||
                  event.call == Call::stream_wait_event || event.call == Call::event_record;
  }
  int calls = 0;
  int mapped = 0;
  int asked = 0;    ///< For memory,
  int refused = 0;  ///< and in vain.
  std::optional<FaultInjector> faults;
  std::map<Call, std::size_t> failed;  ///< By `faults` or the device.
  int of_streams = 0;
};

/// A pool on a simulated device of 512 MiB, where memory that is mapped twice has one content.
class PoolOverVirtualMemory : public ::testing::Test {
 protected:
  void make(const std::string& spec) {
    manager.reset();
    device = *platform->open(0);
    counting = std::make_unique<ForwardingDriver>(*device.driver, hook);
    manager = *find_manager(spec)->make({.driver = counting.get(),
                                         .runtime = nullptr,
                                         .clock = &platform->clock(),
                                         .observer = &observer});
    ASSERT_TRUE(manager->initialize());
  }
  void on_another_device() {
    manager.reset();
    counting.reset();
    device = {};
    platform = *open_platform(kDevice, {});
  }
  MemoryPointer memory(std::uint64_t size, StreamHandle stream = {}) {
    auto made = manager->memalloc(size, stream);
    EXPECT_TRUE(made) << describe(made.error());
    return made ? *std::move(made) : MemoryPointer();
  }
  Driver& driver() { return *device.driver; }
  void fill(const MemoryPointer& memory, std::uint8_t with) {
    ASSERT_TRUE(driver().memset_d8(memory.device_pointer(), with, memory.size()));
  }
  std::uint8_t byte(const MemoryPointer& memory, std::uint64_t at) {
    std::array<std::byte, 1> read{};
    EXPECT_TRUE(driver().memcpy_dtoh(read, memory.device_pointer() + at));
    return std::to_integer<std::uint8_t>(read[0]);
  }
  void expect_filled(const MemoryPointer& memory, std::uint8_t with) {
    for (std::uint64_t at = 0; at < memory.size(); at += 256_KiB)
      ASSERT_EQ(byte(memory, at), with) << at;
    ASSERT_EQ(byte(memory, memory.size() - 1), with);
  }

  static constexpr auto kDevice = "sim:capacity=512MiB,costs=none";
  std::unique_ptr<Platform> platform = *open_platform(kDevice, {});
  OpenedDevice device;
  CountingHook hook;
  std::unique_ptr<ForwardingDriver> counting;
  RecordingObserver observer;
  std::unique_ptr<MemoryManager> manager;
};

}  // namespace emm::test
