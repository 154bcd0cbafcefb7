#pragma once

#include <memory>
#include <string>

#include "driver/cuda/cuda_context.hpp"
#include "driver/driver.hpp"

namespace emm {

/// The driver API over one primary context of a real device. A call is CUDA's, made with the
/// context current; its answer is CUDA's too. After primary_ctx_reset every call but
/// ctx_pop_current answers 709. Any thread may call.
class CudaDriver final : public Driver {
 public:
  CudaDriver(std::shared_ptr<CudaContext> context, int ordinal);

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
  DeviceIdentity device_identity() const noexcept override { return identity_; }
  std::string_view device_name() const noexcept override { return name_; }
  int device_ordinal() const noexcept override { return ordinal_; }
  bool can_map_host_memory() const noexcept override { return can_map_host_memory_; }
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
  std::uint64_t held_bytes() const noexcept override { return context_->held_bytes(); }
  std::uint64_t largest_free_bytes() const noexcept override { return 0; }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  std::int32_t attribute(CUdevice_attribute attribute) const noexcept;
  static Status status_of(Call call, std::int32_t native) {
    if (native != 0) return driver_error(call, native);
    return {};
  }
  /// Makes a call of libcuda in the context; its code as a Status.
  template <class MakeCall>
  Status make(Call call, MakeCall make_call) {
    return status_of(call, context_->with_current([&] { return make_call(context_->api()); }));
  }
  /// The same of a call that asks whether something is done, which it says by a code.
  template <class MakeCall>
  Result<bool> ask(Call call, MakeCall make_call) {
    constexpr std::int32_t kNotReady = 600;
    const auto native = context_->with_current([&] { return make_call(context_->api()); });
    if (native == kNotReady) return false;
    if (native != 0) return driver_error(call, native);
    return true;
  }

  std::shared_ptr<CudaContext> context_;
  const int ordinal_;
  std::string name_;
  DeviceIdentity identity_;
  bool can_map_host_memory_;
};

}  // namespace emm
