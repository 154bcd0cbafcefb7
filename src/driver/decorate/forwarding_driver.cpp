#include "driver/decorate/forwarding_driver.hpp"

#include <type_traits>
#include <utility>

namespace emm {
namespace {

constexpr std::int32_t kUnknown =
    999;  // CUDA_ERROR_UNKNOWN, of a failure that no CUresult is behind

std::uint64_t number(HostPtr ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }
std::uint64_t number(std::uint64_t value) { return value; }
std::uint64_t number(bool answer) { return answer ? 1 : 0; }
std::uint64_t number(const MemoryInfo& info) { return info.free; }
std::uint64_t number(const AddressRange& range) { return range.base.value; }
std::uint64_t number(const IpcMemHandle&) { return 0; }
template <class Handle>
requires std::is_same_v<decltype(Handle::value), std::uint64_t> std::uint64_t number(
    Handle handle) {
  return handle.value;
}

template <class Make>
auto around(CallHook& hook, CallEvent event, Make make) -> decltype(make()) {
  if (const auto native = hook.before(event); native != 0) return driver_error(event.call, native);
  auto answer = make();
  if (!answer) {
    event.native = answer.error().native != 0 ? answer.error().native : kUnknown;
  } else if constexpr (!std::is_void_v<typename decltype(make())::value_type>) {
    event.result = number(*answer);
  }
  hook.after(event);
  return answer;
}

}  // namespace

Result<DevicePtr> ForwardingDriver::mem_alloc(std::uint64_t size) {
  return around(hook_, {.call = Call::mem_alloc, .size = size},
                [&] { return inner_.mem_alloc(size); });
}
Status ForwardingDriver::mem_free(DevicePtr ptr) {
  return around(hook_, {.call = Call::mem_free, .pointer = ptr.value},
                [&] { return inner_.mem_free(ptr); });
}
Result<DevicePtr> ForwardingDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  return around(
      hook_,
      {.call = Call::mem_alloc_managed, .other = static_cast<std::uint64_t>(attach), .size = size},
      [&] { return inner_.mem_alloc_managed(size, attach); });
}
Result<HostPtr> ForwardingDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags flags) {
  return around(hook_, {.call = Call::mem_host_alloc, .other = flags.bits(), .size = size},
                [&] { return inner_.mem_host_alloc(size, flags); });
}
Status ForwardingDriver::mem_free_host(HostPtr ptr) {
  return around(hook_, {.call = Call::mem_free_host, .pointer = number(ptr)},
                [&] { return inner_.mem_free_host(ptr); });
}
Status ForwardingDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  return around(hook_,
                {.call = Call::mem_host_register,
                 .pointer = number(range.pointer),
                 .other = flags.bits(),
                 .size = range.size},
                [&] { return inner_.mem_host_register(range, flags); });
}
Status ForwardingDriver::mem_host_unregister(HostPtr ptr) {
  return around(hook_, {.call = Call::mem_host_unregister, .pointer = number(ptr)},
                [&] { return inner_.mem_host_unregister(ptr); });
}
Result<DevicePtr> ForwardingDriver::mem_host_get_device_pointer(HostPtr ptr) {
  return around(hook_, {.call = Call::mem_host_get_device_pointer, .pointer = number(ptr)},
                [&] { return inner_.mem_host_get_device_pointer(ptr); });
}
Result<MemoryInfo> ForwardingDriver::mem_get_info() {
  return around(hook_, {.call = Call::mem_get_info}, [&] { return inner_.mem_get_info(); });
}
Result<AddressRange> ForwardingDriver::mem_get_address_range(DevicePtr ptr) {
  return around(hook_, {.call = Call::mem_get_address_range, .pointer = ptr.value},
                [&] { return inner_.mem_get_address_range(ptr); });
}

Result<IpcMemHandle> ForwardingDriver::ipc_get_mem_handle(DevicePtr ptr) {
  return around(hook_, {.call = Call::ipc_get_mem_handle, .pointer = ptr.value},
                [&] { return inner_.ipc_get_mem_handle(ptr); });
}
Result<DevicePtr> ForwardingDriver::ipc_open_mem_handle(const IpcMemHandle& handle) {
  return around(hook_, {.call = Call::ipc_open_mem_handle},
                [&] { return inner_.ipc_open_mem_handle(handle); });
}
Status ForwardingDriver::ipc_close_mem_handle(DevicePtr ptr) {
  return around(hook_, {.call = Call::ipc_close_mem_handle, .pointer = ptr.value},
                [&] { return inner_.ipc_close_mem_handle(ptr); });
}
Result<bool> ForwardingDriver::can_access_peer(const DeviceIdentity& peer) {
  return around(
      hook_,
      {.call = Call::can_access_peer, .pointer = static_cast<std::uint64_t>(peer.pci_bus_id)},
      [&] { return inner_.can_access_peer(peer); });
}

Status ForwardingDriver::memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) {
  return around(hook_,
                {.call = Call::memset_d8, .pointer = ptr.value, .other = value, .size = size},
                [&] { return inner_.memset_d8(ptr, value, size); });
}
Status ForwardingDriver::memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) {
  return around(hook_,
                {.call = Call::memset_d32, .pointer = ptr.value, .other = value, .size = count * 4},
                [&] { return inner_.memset_d32(ptr, value, count); });
}
Status ForwardingDriver::memcpy_htod(DevicePtr to, std::span<const std::byte> from) {
  return around(hook_, {.call = Call::memcpy_htod, .pointer = to.value, .size = from.size()},
                [&] { return inner_.memcpy_htod(to, from); });
}
Status ForwardingDriver::memcpy_dtoh(std::span<std::byte> to, DevicePtr from) {
  return around(hook_, {.call = Call::memcpy_dtoh, .pointer = from.value, .size = to.size()},
                [&] { return inner_.memcpy_dtoh(to, from); });
}
Status ForwardingDriver::memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) {
  return around(hook_,
                {.call = Call::memcpy_dtod, .pointer = to.value, .other = from.value, .size = size},
                [&] { return inner_.memcpy_dtod(to, from, size); });
}

Result<EventHandle> ForwardingDriver::event_create() {
  return around(hook_, {.call = Call::event_create}, [&] { return inner_.event_create(); });
}
Status ForwardingDriver::event_destroy(EventHandle event) {
  return around(hook_, {.call = Call::event_destroy, .pointer = event.value},
                [&] { return inner_.event_destroy(event); });
}
Result<StreamHandle> ForwardingDriver::stream_create(StreamKind kind) {
  return around(hook_, {.call = Call::stream_create, .other = static_cast<std::uint64_t>(kind)},
                [&] { return inner_.stream_create(kind); });
}
Status ForwardingDriver::stream_destroy(StreamHandle stream) {
  return around(hook_, {.call = Call::stream_destroy, .pointer = stream.value},
                [&] { return inner_.stream_destroy(stream); });
}
Status ForwardingDriver::stream_synchronize(StreamHandle stream) {
  return around(hook_, {.call = Call::stream_synchronize, .pointer = stream.value},
                [&] { return inner_.stream_synchronize(stream); });
}
Result<LibraryHandle> ForwardingDriver::library_load(std::span<const std::byte> image) {
  return around(hook_, {.call = Call::library_load, .size = image.size()},
                [&] { return inner_.library_load(image); });
}
Status ForwardingDriver::library_unload(LibraryHandle library) {
  return around(hook_, {.call = Call::library_unload, .pointer = library.value},
                [&] { return inner_.library_unload(library); });
}
Status ForwardingDriver::ctx_synchronize() {
  return around(hook_, {.call = Call::ctx_synchronize}, [&] { return inner_.ctx_synchronize(); });
}
Status ForwardingDriver::ctx_push_current() {
  return around(hook_, {.call = Call::ctx_push_current}, [&] { return inner_.ctx_push_current(); });
}
Result<ContextHandle> ForwardingDriver::ctx_pop_current() {
  return around(hook_, {.call = Call::ctx_pop_current}, [&] { return inner_.ctx_pop_current(); });
}
Status ForwardingDriver::primary_ctx_reset() {
  return around(hook_, {.call = Call::primary_ctx_reset},
                [&] { return inner_.primary_ctx_reset(); });
}

Result<bool> ForwardingDriver::stream_query(StreamHandle stream) {
  return around(hook_, {.call = Call::stream_query, .pointer = stream.value},
                [&] { return inner_.stream_query(stream); });
}
Status ForwardingDriver::stream_wait_event(StreamHandle stream, EventHandle event) {
  return around(hook_,
                {.call = Call::stream_wait_event, .pointer = stream.value, .other = event.value},
                [&] { return inner_.stream_wait_event(stream, event); });
}
Status ForwardingDriver::event_record(EventHandle event, StreamHandle stream) {
  return around(hook_, {.call = Call::event_record, .pointer = event.value, .stream = stream},
                [&] { return inner_.event_record(event, stream); });
}
Result<bool> ForwardingDriver::event_query(EventHandle event) {
  return around(hook_, {.call = Call::event_query, .pointer = event.value},
                [&] { return inner_.event_query(event); });
}
Status ForwardingDriver::event_synchronize(EventHandle event) {
  return around(hook_, {.call = Call::event_synchronize, .pointer = event.value},
                [&] { return inner_.event_synchronize(event); });
}
Status ForwardingDriver::memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                                         StreamHandle stream) {
  return around(hook_,
                {.call = Call::memset_d8_async,
                 .pointer = ptr.value,
                 .other = value,
                 .size = size,
                 .stream = stream},
                [&] { return inner_.memset_d8_async(ptr, value, size, stream); });
}
Status ForwardingDriver::memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                                           StreamHandle stream) {
  return around(hook_,
                {.call = Call::memcpy_dtod_async,
                 .pointer = to.value,
                 .other = from.value,
                 .size = size,
                 .stream = stream},
                [&] { return inner_.memcpy_dtod_async(to, from, size, stream); });
}
Status ForwardingDriver::launch_host_func(StreamHandle stream, HostFunction function,
                                          void* argument) {
  return around(hook_, {.call = Call::launch_host_func, .stream = stream},
                [&] { return inner_.launch_host_func(stream, function, argument); });
}
Result<std::uint64_t> ForwardingDriver::mem_get_allocation_granularity() {
  return around(hook_, {.call = Call::mem_get_allocation_granularity},
                [&] { return inner_.mem_get_allocation_granularity(); });
}
Result<DevicePtr> ForwardingDriver::mem_address_reserve(std::uint64_t size, std::uint64_t alignment,
                                                        DevicePtr at) {
  return around(
      hook_,
      {.call = Call::mem_address_reserve, .pointer = at.value, .other = alignment, .size = size},
      [&] { return inner_.mem_address_reserve(size, alignment, at); });
}
Status ForwardingDriver::mem_address_free(DevicePtr ptr, std::uint64_t size) {
  return around(hook_, {.call = Call::mem_address_free, .pointer = ptr.value, .size = size},
                [&] { return inner_.mem_address_free(ptr, size); });
}
Result<PhysicalHandle> ForwardingDriver::mem_create(std::uint64_t size) {
  return around(hook_, {.call = Call::mem_create, .size = size},
                [&] { return inner_.mem_create(size); });
}
Status ForwardingDriver::mem_release(PhysicalHandle handle) {
  return around(hook_, {.call = Call::mem_release, .pointer = handle.value},
                [&] { return inner_.mem_release(handle); });
}
Status ForwardingDriver::mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                                 PhysicalHandle handle) {
  return around(hook_,
                {.call = Call::mem_map, .pointer = ptr.value, .other = handle.value, .size = size},
                [&] { return inner_.mem_map(ptr, size, offset, handle); });
}
Status ForwardingDriver::mem_unmap(DevicePtr ptr, std::uint64_t size) {
  return around(hook_, {.call = Call::mem_unmap, .pointer = ptr.value, .size = size},
                [&] { return inner_.mem_unmap(ptr, size); });
}
Status ForwardingDriver::mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) {
  return around(hook_,
                {.call = Call::mem_set_access,
                 .pointer = ptr.value,
                 .other = static_cast<std::uint64_t>(access),
                 .size = size},
                [&] { return inner_.mem_set_access(ptr, size, access); });
}
Result<PoolHandle> ForwardingDriver::mem_pool_create(std::uint64_t max_size) {
  return around(hook_, {.call = Call::mem_pool_create, .size = max_size},
                [&] { return inner_.mem_pool_create(max_size); });
}
Status ForwardingDriver::mem_pool_destroy(PoolHandle pool) {
  return around(hook_, {.call = Call::mem_pool_destroy, .pointer = pool.value},
                [&] { return inner_.mem_pool_destroy(pool); });
}
Result<PoolHandle> ForwardingDriver::device_get_default_mem_pool() {
  return around(hook_, {.call = Call::device_get_default_mem_pool},
                [&] { return inner_.device_get_default_mem_pool(); });
}
Status ForwardingDriver::mem_pool_trim_to(PoolHandle pool, std::uint64_t keep) {
  return around(hook_, {.call = Call::mem_pool_trim_to, .pointer = pool.value, .size = keep},
                [&] { return inner_.mem_pool_trim_to(pool, keep); });
}
Status ForwardingDriver::mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                                std::uint64_t value) {
  return around(hook_,
                {.call = Call::mem_pool_set_attribute,
                 .pointer = pool.value,
                 .other = static_cast<std::uint64_t>(attribute),
                 .size = value},
                [&] { return inner_.mem_pool_set_attribute(pool, attribute, value); });
}
Result<std::uint64_t> ForwardingDriver::mem_pool_get_attribute(PoolHandle pool,
                                                               PoolAttribute attribute) {
  return around(hook_,
                {.call = Call::mem_pool_get_attribute,
                 .pointer = pool.value,
                 .other = static_cast<std::uint64_t>(attribute)},
                [&] { return inner_.mem_pool_get_attribute(pool, attribute); });
}
Result<DevicePtr> ForwardingDriver::mem_alloc_async(std::uint64_t size, StreamHandle stream) {
  return around(hook_, {.call = Call::mem_alloc_async, .size = size, .stream = stream},
                [&] { return inner_.mem_alloc_async(size, stream); });
}
Result<DevicePtr> ForwardingDriver::mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                                              StreamHandle stream) {
  return around(hook_,
                {.call = Call::mem_alloc_from_pool_async,
                 .other = pool.value,
                 .size = size,
                 .stream = stream},
                [&] { return inner_.mem_alloc_from_pool_async(size, pool, stream); });
}
Status ForwardingDriver::mem_free_async(DevicePtr ptr, StreamHandle stream) {
  return around(hook_, {.call = Call::mem_free_async, .pointer = ptr.value, .stream = stream},
                [&] { return inner_.mem_free_async(ptr, stream); });
}
Status ForwardingDriver::ctx_enable_peer_access(ContextHandle peer) {
  return around(hook_, {.call = Call::ctx_enable_peer_access, .pointer = peer.value},
                [&] { return inner_.ctx_enable_peer_access(peer); });
}
Status ForwardingDriver::ctx_disable_peer_access(ContextHandle peer) {
  return around(hook_, {.call = Call::ctx_disable_peer_access, .pointer = peer.value},
                [&] { return inner_.ctx_disable_peer_access(peer); });
}
Status ForwardingDriver::memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                                     ContextHandle from_context, std::uint64_t size) {
  return around(hook_,
                {.call = Call::memcpy_peer, .pointer = to.value, .other = from.value, .size = size},
                [&] { return inner_.memcpy_peer(to, to_context, from, from_context, size); });
}

Result<DevicePtr> ForwardingRuntime::malloc(std::uint64_t size) {
  return around(hook_, {.call = Call::runtime_malloc, .size = size},
                [&] { return inner_.malloc(size); });
}
Status ForwardingRuntime::free(DevicePtr ptr) {
  return around(hook_, {.call = Call::runtime_free, .pointer = ptr.value},
                [&] { return inner_.free(ptr); });
}
Result<MemoryInfo> ForwardingRuntime::mem_get_info() {
  return around(hook_, {.call = Call::runtime_get_info}, [&] { return inner_.mem_get_info(); });
}

namespace {

struct OwnedDriver final : private std::unique_ptr<Driver>, public ForwardingDriver {
  OwnedDriver(std::unique_ptr<Driver> inner, CallHook& hook)
      : std::unique_ptr<Driver>(std::move(inner)), ForwardingDriver(**this, hook) {}
};

class OwnedRuntime final : public Runtime {
 public:
  OwnedRuntime(std::unique_ptr<Runtime> inner, CallHook& hook)
      : inner_(std::move(inner)), forward_(*inner_, hook) {}
  Result<DevicePtr> malloc(std::uint64_t size) override { return forward_.malloc(size); }
  Status free(DevicePtr ptr) override { return forward_.free(ptr); }
  Result<MemoryInfo> mem_get_info() override { return forward_.mem_get_info(); }

 private:
  std::unique_ptr<Runtime> inner_;
  ForwardingRuntime forward_;
};

}  // namespace

OpenedDevice hooked(OpenedDevice device, CallHook& hook) {
  OpenedDevice out;
  out.driver = std::make_unique<OwnedDriver>(std::move(device.driver), hook);
  if (device.runtime) out.runtime = std::make_unique<OwnedRuntime>(std::move(device.runtime), hook);
  return out;
}

}  // namespace emm
