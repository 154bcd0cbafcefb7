#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "driver/types.hpp"

namespace emm {

/// The slice of the CUDA driver API that memory managers stand on, seen from one context.
///
/// There is one implementation per kind of device: sim (in this process) and cuda (libcuda, loaded
/// at run time); decorators stand between. A Driver belongs to one primary context of one device,
/// and makes that context current around every call, so a caller need not (contract: BASE-6,
/// RST-13).
///
/// True of every call: sizes are bytes; a failure is an Error with the CUresult in `native`, and a
/// call that fails changes nothing; any thread may call at any time; nothing here throws. What each
/// call answers in odd cases (size 0, double free, interior address...) is CUDA's own behaviour,
/// which tests/driver pins for both devices.
class Driver {
 public:
  virtual ~Driver() = default;

  // Device memory
  virtual Result<DevicePtr> mem_alloc(std::uint64_t size) = 0;
  virtual Status mem_free(DevicePtr ptr) = 0;
  virtual Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) = 0;

  // Page-locked host memory
  virtual Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) = 0;
  virtual Status mem_free_host(HostPtr ptr) = 0;
  virtual Status mem_host_register(HostRange range, HostRegisterFlags flags) = 0;
  virtual Status mem_host_unregister(HostPtr ptr) = 0;
  virtual Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) = 0;

  // Questions
  virtual Result<MemoryInfo> mem_get_info() = 0;
  /// The allocation that `ptr` points into, also from its interior.
  virtual Result<AddressRange> mem_get_address_range(DevicePtr ptr) = 0;
  virtual DeviceIdentity device_identity() const noexcept = 0;
  virtual std::string_view device_name() const noexcept = 0;
  virtual int device_ordinal() const noexcept = 0;
  virtual bool can_map_host_memory()
      const noexcept = 0;  ///< CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY

  // IPC. Opening uses CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
  virtual Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr) = 0;
  virtual Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle& handle) = 0;
  virtual Status ipc_close_mem_handle(DevicePtr ptr) = 0;
  virtual Result<bool> can_access_peer(const DeviceIdentity& peer) = 0;

  // Content. Synchronous: done when they return.
  virtual Status memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) = 0;
  virtual Status memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) = 0;
  virtual Status memcpy_htod(DevicePtr to, std::span<const std::byte> from) = 0;
  virtual Status memcpy_dtoh(std::span<std::byte> to, DevicePtr from) = 0;
  virtual Status memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) = 0;

  // Objects that are not memory, and the context itself
  virtual Result<EventHandle> event_create() = 0;  ///< Without timing.
  virtual Status event_destroy(EventHandle event) = 0;
  /// A blocking stream waits for the legacy default stream, which waits for it.
  virtual Result<StreamHandle> stream_create(StreamKind kind = StreamKind::blocking) = 0;
  virtual Status stream_destroy(StreamHandle stream) = 0;
  virtual Status stream_synchronize(StreamHandle stream) = 0;
  virtual Result<LibraryHandle> library_load(std::span<const std::byte> image) = 0;
  virtual Status library_unload(LibraryHandle library) = 0;
  virtual Status ctx_synchronize() = 0;
  virtual Status ctx_push_current() = 0;
  virtual Result<ContextHandle> ctx_pop_current() = 0;
  virtual ContextHandle context_handle() const noexcept = 0;
  /// cuDevicePrimaryCtxReset: everything in the context is gone; later calls here answer
  /// context_destroyed until the device is opened again.
  virtual Status primary_ctx_reset() = 0;

  // What follows not every device has, and a driver that is written for tests need not: where it is
  // missing the answer is not_supported (801).

  // Order. Work on a stream is pending until something orders it: see sim/ and docs/streams.md.
  /// False: work is pending (CUDA_ERROR_NOT_READY, which is no error here).
  virtual Result<bool> stream_query(StreamHandle stream);
  /// Work put on `stream` from here on runs after what `event` last recorded; nothing where it
  /// recorded nothing.
  virtual Status stream_wait_event(StreamHandle stream, EventHandle event);
  virtual Status event_record(EventHandle event, StreamHandle stream);
  /// True also where nothing was recorded.
  virtual Result<bool> event_query(EventHandle event);
  virtual Status event_synchronize(EventHandle event);

  // Work
  virtual Status memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                                 StreamHandle stream);
  virtual Status memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                                   StreamHandle stream);
  /// `function(argument)` runs on a thread of the driver's when the stream's work before it is
  /// done; what comes after it on the stream waits for it. It must make no call of the driver.
  virtual Status launch_host_func(StreamHandle stream, HostFunction function, void* argument);

  // Virtual memory. Sizes and addresses are multiples of the granularity. A handle is mapped whole,
  // a mapping unmapped whole; memory of a released handle is given back by its last unmap (measured
  // on an H200).
  virtual Result<std::uint64_t> mem_get_allocation_granularity();
  /// `alignment` 0: the granularity. `at` is a wish.
  virtual Result<DevicePtr> mem_address_reserve(std::uint64_t size, std::uint64_t alignment = 0,
                                                DevicePtr at = {});
  virtual Status mem_address_free(DevicePtr ptr, std::uint64_t size);
  virtual Result<PhysicalHandle> mem_create(std::uint64_t size);
  virtual Status mem_release(PhysicalHandle handle);
  virtual Status mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                         PhysicalHandle handle);
  virtual Status mem_unmap(DevicePtr ptr, std::uint64_t size);
  /// Of this device.
  virtual Status mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access);

  // Stream-ordered memory
  /// `max_size` 0: no limit.
  virtual Result<PoolHandle> mem_pool_create(std::uint64_t max_size = 0);
  virtual Status mem_pool_destroy(PoolHandle pool);
  /// The pool that mem_alloc_async takes from; not to be destroyed.
  virtual Result<PoolHandle> device_get_default_mem_pool();
  /// Gives back what is idle until no more than `keep` bytes are held.
  virtual Status mem_pool_trim_to(PoolHandle pool, std::uint64_t keep);
  virtual Status mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                        std::uint64_t value);
  virtual Result<std::uint64_t> mem_pool_get_attribute(PoolHandle pool, PoolAttribute attribute);
  virtual Result<DevicePtr> mem_alloc_async(std::uint64_t size, StreamHandle stream);
  virtual Result<DevicePtr> mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                                      StreamHandle stream);
  virtual Status mem_free_async(DevicePtr ptr, StreamHandle stream);

  // Peers
  /// This context may read and write the memory of `peer`'s.
  virtual Status ctx_enable_peer_access(ContextHandle peer);
  virtual Status ctx_disable_peer_access(ContextHandle peer);
  /// Also where neither has access to the other. Done when it returns.
  virtual Status memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                             ContextHandle from_context, std::uint64_t size);

  /// Physical bytes of the device that this context holds, as cuMemGetInfo would show them, without
  /// the cost of asking. Exact on sim; on a real device counted from the calls made here, in whole
  /// pages.
  virtual std::uint64_t held_bytes() const noexcept = 0;
  /// The largest mem_alloc that could succeed now; 0 where the device does not tell.
  virtual std::uint64_t largest_free_bytes() const noexcept = 0;

  /// What a log shows for a host address: the address itself on a real device; on the simulated one
  /// a number that is the same in every run. Never fails: an unknown address is shown as it is.
  virtual std::uint64_t log_address(const std::byte* ptr) const noexcept = 0;
};

/// The slice of cudart that the `cudart` manager stands on. Same rules as Driver.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Result<DevicePtr> malloc(std::uint64_t size) = 0;
  virtual Status free(DevicePtr ptr) = 0;
  virtual Result<MemoryInfo> mem_get_info() = 0;
};

}  // namespace emm
