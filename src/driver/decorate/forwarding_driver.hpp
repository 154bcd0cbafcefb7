#pragma once

#include <memory>

#include "driver/decorate/call_hook.hpp"
#include "driver/device_entry.hpp"

namespace emm {

/// A driver that passes every call to another, with a hook around it: the one place where
/// decorators see calls. What it answers is what the other answers, unless the hook refuses. The
/// questions that are no call of CUDA's (names, held_bytes, ...) pass by the hook. Both must
/// outlive it; threads as theirs.
class ForwardingDriver : public Driver {
 public:
  ForwardingDriver(Driver& inner, CallHook& hook) noexcept : inner_(inner), hook_(hook) {}

  Result<DevicePtr> mem_alloc(std::uint64_t size) override;
  Status mem_free(DevicePtr ptr) override;
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) override;
  Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) override;
  Status mem_free_host(HostPtr ptr) override;
  Status mem_host_register(HostRange range, HostRegisterFlags flags) override;
  Status mem_host_unregister(HostPtr ptr) override;
  Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;
  Result<AddressRange> mem_get_address_range(DevicePtr ptr) override;
  DeviceIdentity device_identity() const noexcept override { return inner_.device_identity(); }
  std::string_view device_name() const noexcept override { return inner_.device_name(); }
  int device_ordinal() const noexcept override { return inner_.device_ordinal(); }
  bool can_map_host_memory() const noexcept override { return inner_.can_map_host_memory(); }
  Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr) override;
  Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle& handle) override;
  Status ipc_close_mem_handle(DevicePtr ptr) override;
  Result<bool> can_access_peer(const DeviceIdentity& peer) override;
  Status memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) override;
  Status memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) override;
  Status memcpy_htod(DevicePtr to, std::span<const std::byte> from) override;
  Status memcpy_dtoh(std::span<std::byte> to, DevicePtr from) override;
  Status memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) override;
  Result<EventHandle> event_create() override;
  Status event_destroy(EventHandle event) override;
  Result<StreamHandle> stream_create(StreamKind kind = StreamKind::blocking) override;
  Status stream_destroy(StreamHandle stream) override;
  Status stream_synchronize(StreamHandle stream) override;
  Result<LibraryHandle> library_load(std::span<const std::byte> image) override;
  Status library_unload(LibraryHandle library) override;
  Status ctx_synchronize() override;
  Status ctx_push_current() override;
  Result<ContextHandle> ctx_pop_current() override;
  ContextHandle context_handle() const noexcept override { return inner_.context_handle(); }
  Status primary_ctx_reset() override;
  Result<bool> stream_query(StreamHandle stream) override;
  Status stream_wait_event(StreamHandle stream, EventHandle event) override;
  Status event_record(EventHandle event, StreamHandle stream) override;
  Result<bool> event_query(EventHandle event) override;
  Status event_synchronize(EventHandle event) override;
  Status memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                         StreamHandle stream) override;
  Status memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                           StreamHandle stream) override;
  Status launch_host_func(StreamHandle stream, HostFunction function, void* argument) override;
  Result<std::uint64_t> mem_get_allocation_granularity() override;
  Result<DevicePtr> mem_address_reserve(std::uint64_t size, std::uint64_t alignment,
                                        DevicePtr at) override;
  Status mem_address_free(DevicePtr ptr, std::uint64_t size) override;
  Result<PhysicalHandle> mem_create(std::uint64_t size) override;
  Status mem_release(PhysicalHandle handle) override;
  Status mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                 PhysicalHandle handle) override;
  Status mem_unmap(DevicePtr ptr, std::uint64_t size) override;
  Status mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) override;
  Result<PoolHandle> mem_pool_create(std::uint64_t max_size) override;
  Status mem_pool_destroy(PoolHandle pool) override;
  Result<PoolHandle> device_get_default_mem_pool() override;
  Status mem_pool_trim_to(PoolHandle pool, std::uint64_t keep) override;
  Status mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                std::uint64_t value) override;
  Result<std::uint64_t> mem_pool_get_attribute(PoolHandle pool, PoolAttribute attribute) override;
  Result<DevicePtr> mem_alloc_async(std::uint64_t size, StreamHandle stream) override;
  Result<DevicePtr> mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                              StreamHandle stream) override;
  Status mem_free_async(DevicePtr ptr, StreamHandle stream) override;
  Status ctx_enable_peer_access(ContextHandle peer) override;
  Status ctx_disable_peer_access(ContextHandle peer) override;
  Status memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                     ContextHandle from_context, std::uint64_t size) override;
  std::uint64_t held_bytes() const noexcept override { return inner_.held_bytes(); }
  std::uint64_t largest_free_bytes() const noexcept override { return inner_.largest_free_bytes(); }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override {
    return inner_.log_address(ptr);
  }

 private:
  Driver& inner_;
  CallHook& hook_;
};

/// The same for a runtime.
class ForwardingRuntime final : public Runtime {
 public:
  ForwardingRuntime(Runtime& inner, CallHook& hook) noexcept : inner_(inner), hook_(hook) {}

  Result<DevicePtr> malloc(std::uint64_t size) override;
  Status free(DevicePtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

 private:
  Runtime& inner_;
  CallHook& hook_;
};

/// `device` with `hook` around every call of its driver and its runtime; owns what it decorates.
OpenedDevice hooked(OpenedDevice device, CallHook& hook);

}  // namespace emm
