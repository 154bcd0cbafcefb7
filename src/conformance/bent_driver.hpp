#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm::conformance {

/// A driver whose answers a clause can bend, on any device. What is not bent is the device's own
/// answer. Bend before other threads call.
class BentDriver final : public ForwardingDriver {
 public:
  explicit BentDriver(Driver& inner) noexcept : ForwardingDriver(inner, none()), inner_(inner) {}

  std::optional<std::uint64_t> total;  ///< What mem_get_info says that there is.
  std::uint64_t host_to_device = 0;    ///< Added to the device address of mapped memory.
  bool gives_again =
      false;  ///< The next allocations are given the address that the last of theirs got.
  bool maps_host_memory = true;
  std::optional<bool> reaches_peers;
  bool loops_back = false;  ///< Opening IPC memory of this process gives the memory itself.

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
