#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm::conformance {

/// A driver over any device that lets a clause replace single answers. All others come from the
/// device. A clause must set these before other threads call.
class StubDriver final : public ForwardingDriver {
 public:
  explicit StubDriver(Driver& inner) noexcept : ForwardingDriver(inner, none()), inner_(inner) {}

  std::optional<std::uint64_t> total;  ///< Replaces the total of mem_get_info.
  std::uint64_t host_to_device = 0;    ///< Added to the device address of mapped memory.
  bool repeats_last_address = false;   ///< Allocations return the address of the last one again.
  bool maps_host_memory = true;
  std::optional<bool> reaches_peers;
  bool loops_back = false;  ///< An IPC handle of this process opens as the memory itself.

  Result<DevicePtr> mem_alloc(std::uint64_t size) override;
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) override;
  Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) override;
  Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;
  bool can_map_host_memory() const noexcept override;
  Result<bool> can_access_peer(const DeviceIdentity& peer) override;
  Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr) override;
  Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle& handle) override;
  Status ipc_close_mem_handle(DevicePtr ptr) override;

 private:
  static CallHook& none() noexcept;

  Driver& inner_;
  std::atomic<DevicePtr> last_{};
  std::atomic<HostPtr> last_host_{nullptr};
};

}  // namespace emm::conformance
