#pragma once

#include "driver/driver.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {

/// cudart for a simulated device. As measured: malloc of 0 bytes succeeds with null, and cudart's
/// codes for memory are those of the driver. Any thread may call.
class SimRuntime final : public Runtime {
 public:
  SimRuntime(SimPlatform& platform, sim::SimDevice& device, ContextHandle context) noexcept
      : platform_(platform), device_(device), context_(context) {}

  Result<DevicePtr> malloc(std::uint64_t size) override;
  Status free(DevicePtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

 private:
  SimPlatform& platform_;
  sim::SimDevice& device_;
  const ContextHandle context_;
};

}  // namespace emm
