#pragma once

#include "driver/driver.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {

/// The driver API over one context of a simulated device. What a call does is sim::SimDevice's;
/// here it gets its cost and its form, and addresses find whose they are. Any thread may call.
///
/// After primary_ctx_reset every call answers 709 (measured), but for ctx_pop_current, which only
/// takes a context off the thread's stack.
class SimDriver final : public Driver {
 public:
  SimDriver(SimPlatform& platform, sim::SimDevice& device, ContextHandle context) noexcept
      : platform_(platform), device_(device), context_(context) {}

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
  DeviceIdentity device_identity() const noexcept override { return platform_.identity(ordinal()); }
  std::string_view device_name() const noexcept override { return "simulated H200"; }
  int device_ordinal() const noexcept override { return ordinal(); }
  bool can_map_host_memory() const noexcept override { return true; }
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
  Result<LibraryHandle> library_load(std::span<const std::byte> image) override;
  Status library_unload(LibraryHandle library) override;
  Status ctx_synchronize() override;
  Status ctx_push_current() override;
  Result<ContextHandle> ctx_pop_current() override;
  ContextHandle context_handle() const noexcept override { return context_; }
  Status primary_ctx_reset() override;
  std::uint64_t held_bytes() const noexcept override { return device_.held_bytes(context_); }
  std::uint64_t largest_free_bytes() const noexcept override {
    return device_.largest_free_bytes(context_);
  }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  int ordinal() const noexcept { return device_.ordinal(); }
  sim::Asker asker() const noexcept { return {ordinal(), context_}; }
  /// 0, or what every call in the context is answered.
  std::int32_t state() const { return device_.state(context_); }
  /// The same after waiting: for what a call on the legacy stream waits for, or for everything.
  std::int32_t finish_before();
  std::int32_t finish_all();
  /// The same after a wait for work.
  std::int32_t synchronized();
  /// Puts work that touches `size` bytes at an address, or at two, on a stream.
  Status put(Call call, StreamHandle stream, const sim::Work& work);
  template <class Ask>
  Status ask(Call call, Ask&& question);
  std::int32_t set_peer_access(ContextHandle peer, bool enable);
  template <class Value, class Ask>
  Result<Value> ask_pools(Call call, Ask&& question);
  template <class Value, class Ask>
  Result<Value> ask_memory(Call call, Ask&& question);
  Status set(Call call, DevicePtr ptr, std::uint32_t value, std::uint64_t size);

  SimPlatform& platform_;
  sim::SimDevice& device_;
  const ContextHandle context_;
};

}  // namespace emm
