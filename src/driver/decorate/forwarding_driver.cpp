#include "driver/decorate/forwarding_driver.hpp"

#include <type_traits>
#include <utility>

namespace emm {
namespace {

constexpr std::int32_t kUnknown =
    999;  // CUDA_ERROR_UNKNOWN, of a failure that no CUresult is behind

std::uint64_t number(HostPtr ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }
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
Result<StreamHandle> ForwardingDriver::stream_create() {
  return around(hook_, {.call = Call::stream_create}, [&] { return inner_.stream_create(); });
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
