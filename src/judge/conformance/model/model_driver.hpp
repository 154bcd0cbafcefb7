#pragma once

#include "conformance/model/scripted_device.hpp"
#include "driver/call.hpp"
#include "driver/driver.hpp"

namespace emm::model {

/// The scripted device as managers see it. Calls that the contract does not provide for are logged
/// and refused. Host addresses are only numbers and must not be accessed.
class ModelDriver final : public Driver {
 public:
  explicit ModelDriver(ScriptedDevice& device) noexcept : device_(device) {}

  Result<DevicePtr> mem_alloc(std::uint64_t size) override;
  Status mem_free(DevicePtr ptr) override;
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) override;
  Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) override;
  Status mem_free_host(HostPtr ptr) override;
  Status mem_host_register(HostRange range, HostRegisterFlags flags) override;
  Status mem_host_unregister(HostPtr ptr) override;
  Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

  Result<AddressRange> mem_get_address_range(DevicePtr) override {
    return refuse(Call::mem_get_address_range);
  }
  DeviceIdentity device_identity() const noexcept override { return {}; }
  std::string_view device_name() const noexcept override { return "scripted"; }
  int device_ordinal() const noexcept override { return 0; }
  bool can_map_host_memory() const noexcept override { return true; }
  Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr) override {
    return refuse(Call::ipc_get_mem_handle);
  }
  Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle&) override {
    return refuse(Call::ipc_open_mem_handle);
  }
  Status ipc_close_mem_handle(DevicePtr) override { return refuse(Call::ipc_close_mem_handle); }
  Result<bool> can_access_peer(const DeviceIdentity&) override {
    return refuse(Call::can_access_peer);
  }
  Status memset_d8(DevicePtr, std::uint8_t, std::uint64_t) override {
    return refuse(Call::memset_d8);
  }
  Status memset_d32(DevicePtr, std::uint32_t, std::uint64_t) override {
    return refuse(Call::memset_d32);
  }
  Status memcpy_htod(DevicePtr, std::span<const std::byte>) override {
    return refuse(Call::memcpy_htod);
  }
  Status memcpy_dtoh(std::span<std::byte>, DevicePtr) override { return refuse(Call::memcpy_dtoh); }
  Status memcpy_dtod(DevicePtr, DevicePtr, std::uint64_t) override {
    return refuse(Call::memcpy_dtod);
  }
  Result<EventHandle> event_create() override { return refuse(Call::event_create); }
  Status event_destroy(EventHandle) override { return refuse(Call::event_destroy); }
  Result<StreamHandle> stream_create(StreamKind = StreamKind::blocking) override {
    return refuse(Call::stream_create);
  }
  Status stream_destroy(StreamHandle) override { return refuse(Call::stream_destroy); }
  Status stream_synchronize(StreamHandle) override { return refuse(Call::stream_synchronize); }
  Result<LibraryHandle> library_load(std::span<const std::byte>) override {
    return refuse(Call::library_load);
  }
  Status library_unload(LibraryHandle) override { return refuse(Call::library_unload); }
  Status ctx_synchronize() override { return refuse(Call::ctx_synchronize); }
  Status ctx_push_current() override { return refuse(Call::ctx_push_current); }
  Result<ContextHandle> ctx_pop_current() override { return refuse(Call::ctx_pop_current); }
  ContextHandle context_handle() const noexcept override { return {1}; }
  Status primary_ctx_reset() override { return refuse(Call::primary_ctx_reset); }
  std::uint64_t held_bytes() const noexcept override { return 0; }
  std::uint64_t largest_free_bytes() const noexcept override { return 0; }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  Error refuse(Call call);

  ScriptedDevice& device_;
};

HostPtr to_host_pointer(std::uint64_t address) noexcept;
std::uint64_t host_address(const std::byte* ptr) noexcept;

}  // namespace emm::model
