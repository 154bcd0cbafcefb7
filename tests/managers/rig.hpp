#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "tests/emm/scripted_driver.hpp"

namespace emm::test {

/// A manager over a scripted device.
struct Rig {
  explicit Rig(const std::string& spec, std::initializer_list<std::string> adaptors = {}) {
    const std::vector<std::string> over(adaptors);
    auto factory = find_manager(spec, over);
    EXPECT_TRUE(factory) << describe(factory.error());
    auto made = factory->make(
        {.driver = &driver, .runtime = &runtime, .clock = &clock, .observer = &observer});
    EXPECT_TRUE(made) << describe(made.error());
    manager = *std::move(made);
  }

  using Calls = std::vector<ScriptedDriver::Entry>;
  using Flushes = std::vector<RecordingObserver::Flush>;
  /// The driver calls since the last question.
  Calls taken() {
    auto calls = driver.calls();
    driver.forget_calls();
    return calls;
  }
  MemoryPointer memory(std::uint64_t size, StreamHandle stream = {}) {
    auto result = manager->memalloc(size, stream);
    EXPECT_TRUE(result) << describe(result.error());
    return *std::move(result);
  }

  ScriptedDriver driver;
  ScriptedRuntime runtime{driver};
  ManualClock clock;
  RecordingObserver observer;
  std::unique_ptr<MemoryManager> manager;
};

/// A buffer that can be pinned; what is in it is nobody's business.
inline HostRange host_range(std::uint64_t at = 0x30000000, std::uint64_t size = 64) {
  return {.pointer = reinterpret_cast<HostPtr>(at), .size = size};
}
inline std::uint64_t number_of(HostPtr pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace emm::test
