#pragma once

#include <optional>
#include <string>

#include "driver/driver.hpp"
#include "emm/manager_observer.hpp"
#include "plugin/emm_plugin.h"

namespace emm::libemm {

/// A host's table as a Driver. What the table does not have answers not_supported. The table
/// outlives it.
class TableDriver final : public Driver {
 public:
  explicit TableDriver(const emm_driver_v1& table) noexcept;

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
  DeviceIdentity device_identity() const noexcept override;
  std::string_view device_name() const noexcept override;
  int device_ordinal() const noexcept override;
  bool can_map_host_memory() const noexcept override;
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
  ContextHandle context_handle() const noexcept override;
  /// Not a manager's to ask: not_supported.
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

  std::uint64_t held_bytes() const noexcept override;
  std::uint64_t largest_free_bytes() const noexcept override;
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  const emm_driver_v1 table_;
};

/// The cudart half of a host's table.
class TableRuntime final : public Runtime {
 public:
  explicit TableRuntime(const emm_driver_v1& table) noexcept;
  bool is_there() const noexcept { return table_.runtime_malloc != nullptr; }
  Result<DevicePtr> malloc(std::uint64_t size) override;
  Status free(DevicePtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

 private:
  const emm_driver_v1 table_;
};

/// The host's time.
class TableClock final : public Clock {
 public:
  explicit TableClock(const emm_host_v1& table) noexcept : table_(table) {}
  std::uint64_t now_ns() const noexcept override;
  std::string_view kind() const noexcept override { return "host"; }

 private:
  const emm_host_v1 table_;
};

/// What a manager says, told to the host.
class TableObserver final : public ManagerObserver {
 public:
  explicit TableObserver(const emm_host_v1& table) noexcept : table_(table) {}
  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;

 private:
  const emm_host_v1 table_;
};

}  // namespace emm::libemm
