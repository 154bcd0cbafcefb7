#include "driver/cuda/cuda_driver.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "driver/call.hpp"
#include "driver/cuda/handles.hpp"

namespace emm {
namespace {

using cuda::handle_of;
using cuda::number;

}  // namespace

CudaDriver::CudaDriver(std::shared_ptr<CudaContext> context, int ordinal)
    : context_(std::move(context)), ordinal_(ordinal) {
  std::array<char, 256> name{};
  context_->api().device_get_name(name.data(), static_cast<int>(name.size()) - 1,
                                  context_->device());
  name_ = name.data();
  identity_ = {.pci_domain_id = attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
               .pci_bus_id = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
               .pci_device_id = attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)};
  can_map_host_memory_ = attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) != 0;
}

std::int32_t CudaDriver::attribute(CUdevice_attribute which) const noexcept {
  int value = 0;
  context_->api().device_get_attribute(&value, which, context_->device());
  return value;
}

Result<DevicePtr> CudaDriver::mem_alloc(std::uint64_t size) {
  CUdeviceptr ptr = 0;
  if (auto made =
          make(Call::mem_alloc, [&](const CudaApi& api) { return api.mem_alloc(&ptr, size); });
      !made) {
    return std::move(made).error();
  }
  context_->held().add(ptr, size);
  return DevicePtr{ptr};
}

// The count falls before the call: the driver may give the address to another thread before this
// one continues, and that thread's add() must not meet the old entry.
Status CudaDriver::mem_free(DevicePtr ptr) {
  return make(Call::mem_free, [&](const CudaApi& api) {
    const auto size = context_->held().remove(ptr.value);
    const auto native = api.mem_free(ptr.value);
    if (native != 0 && size != 0) context_->held().add(ptr.value, size);
    return native;
  });
}

Result<DevicePtr> CudaDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  CUdeviceptr ptr = 0;
  auto made = make(Call::mem_alloc_managed, [&](const CudaApi& api) {
    return api.mem_alloc_managed(&ptr, size, static_cast<unsigned>(attach));
  });
  if (!made) return std::move(made).error();
  return DevicePtr{ptr};
}

Result<HostPtr> CudaDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags flags) {
  void* ptr = nullptr;
  auto made = make(Call::mem_host_alloc, [&](const CudaApi& api) {
    return api.mem_host_alloc(&ptr, size, flags.bits());
  });
  if (!made) return std::move(made).error();
  return static_cast<HostPtr>(ptr);
}

Status CudaDriver::mem_free_host(HostPtr ptr) {
  return make(Call::mem_free_host, [&](const CudaApi& api) { return api.mem_free_host(ptr); });
}

Status CudaDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  return make(Call::mem_host_register, [&](const CudaApi& api) {
    return api.mem_host_register(range.pointer, range.size, flags.bits());
  });
}

Status CudaDriver::mem_host_unregister(HostPtr ptr) {
  return make(Call::mem_host_unregister,
              [&](const CudaApi& api) { return api.mem_host_unregister(ptr); });
}

Result<DevicePtr> CudaDriver::mem_host_get_device_pointer(HostPtr host) {
  CUdeviceptr ptr = 0;
  auto made = make(Call::mem_host_get_device_pointer, [&](const CudaApi& api) {
    return api.mem_host_get_device_pointer(&ptr, host, 0);
  });
  if (!made) return std::move(made).error();
  return DevicePtr{ptr};
}

Result<MemoryInfo> CudaDriver::mem_get_info() {
  std::size_t free = 0, total = 0;
  auto made =
      make(Call::mem_get_info, [&](const CudaApi& api) { return api.mem_get_info(&free, &total); });
  if (!made) return std::move(made).error();
  return MemoryInfo{.free = free, .total = total};
}

Result<AddressRange> CudaDriver::mem_get_address_range(DevicePtr ptr) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  auto made = make(Call::mem_get_address_range, [&](const CudaApi& api) {
    return api.mem_get_address_range(&base, &size, ptr.value);
  });
  if (!made) return std::move(made).error();
  return AddressRange{.base = {base}, .size = size};
}

Result<IpcMemHandle> CudaDriver::ipc_get_mem_handle(DevicePtr ptr) {
  CUipcMemHandle native{};
  auto made = make(Call::ipc_get_mem_handle,
                   [&](const CudaApi& api) { return api.ipc_get_mem_handle(&native, ptr.value); });
  if (!made) return std::move(made).error();
  IpcMemHandle handle;
  static_assert(sizeof handle.bytes == sizeof native);
  std::memcpy(handle.bytes.data(), &native, sizeof native);
  return handle;
}

Result<DevicePtr> CudaDriver::ipc_open_mem_handle(const IpcMemHandle& handle) {
  CUipcMemHandle native{};
  std::memcpy(&native, handle.bytes.data(), sizeof native);
  CUdeviceptr ptr = 0;
  auto made = make(Call::ipc_open_mem_handle, [&](const CudaApi& api) {
    return api.ipc_open_mem_handle(&ptr, native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  });
  if (!made) return std::move(made).error();
  return DevicePtr{ptr};
}

Status CudaDriver::ipc_close_mem_handle(DevicePtr ptr) {
  return make(Call::ipc_close_mem_handle,
              [&](const CudaApi& api) { return api.ipc_close_mem_handle(ptr.value); });
}

Result<bool> CudaDriver::can_access_peer(const DeviceIdentity& peer) {
  std::array<char, 32> bus_id{};
  std::snprintf(bus_id.data(), bus_id.size(), "%04x:%02x:%02x.0",
                static_cast<unsigned>(peer.pci_domain_id), static_cast<unsigned>(peer.pci_bus_id),
                static_cast<unsigned>(peer.pci_device_id));
  int answer = 0;
  auto made = make(Call::can_access_peer, [&](const CudaApi& api) {
    CUdevice other = 0;
    if (api.device_get_by_pci_bus_id(&other, bus_id.data()) != 0) return CUDA_ERROR_INVALID_DEVICE;
    return api.can_access_peer(&answer, context_->device(), other);
  });
  if (!made) return std::move(made).error();
  return answer != 0;
}

// CUDA's memsets and copies on the device may return before they are done, but ContentCalls promise
// to be done. They are work on the legacy default stream, so this waits for that stream. It must
// not wait for the whole context: that would order non-blocking streams, which CUDA does not.
Status CudaDriver::memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) {
  return make(Call::memset_d8, [&](const CudaApi& api) {
    const auto native = api.memset_d8(ptr.value, value, size);
    return native != 0 ? native : api.stream_synchronize(CU_STREAM_LEGACY);
  });
}

Status CudaDriver::memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) {
  return make(Call::memset_d32, [&](const CudaApi& api) {
    const auto native = api.memset_d32(ptr.value, value, count);
    return native != 0 ? native : api.stream_synchronize(CU_STREAM_LEGACY);
  });
}

Status CudaDriver::memcpy_htod(DevicePtr to, std::span<const std::byte> from) {
  return make(Call::memcpy_htod, [&](const CudaApi& api) {
    // A copy from pageable memory returns when the bytes are staged, before they arrive. Another
    // process might then still see the old content.
    const auto native = api.memcpy_htod(to.value, from.data(), from.size());
    return native != 0 ? native : api.stream_synchronize(CU_STREAM_LEGACY);
  });
}

Status CudaDriver::memcpy_dtoh(std::span<std::byte> to, DevicePtr from) {
  return make(Call::memcpy_dtoh, [&](const CudaApi& api) {
    return api.memcpy_dtoh(to.data(), from.value, to.size());
  });
}

Status CudaDriver::memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) {
  return make(Call::memcpy_dtod, [&](const CudaApi& api) {
    const auto native = api.memcpy_dtod(to.value, from.value, size);
    return native != 0 ? native : api.stream_synchronize(CU_STREAM_LEGACY);
  });
}

Result<LibraryHandle> CudaDriver::library_load(std::span<const std::byte> image) {
  // CUDA reads PTX up to a zero byte, which the caller's span may lack.
  std::string code(reinterpret_cast<const char*>(image.data()), image.size());
  CUlibrary library = nullptr;
  auto made = make(Call::library_load, [&](const CudaApi& api) {
    return api.library_load(&library, code.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
  if (!made) return std::move(made).error();
  return LibraryHandle{number(library)};
}

Status CudaDriver::library_unload(LibraryHandle library) {
  return make(Call::library_unload, [&](const CudaApi& api) {
    return api.library_unload(handle_of<CUlibrary>(library.value));
  });
}

Status CudaDriver::ctx_synchronize() {
  return make(Call::ctx_synchronize, [&](const CudaApi& api) { return api.ctx_synchronize(); });
}

Status CudaDriver::ctx_push_current() {
  if (context_->is_dead())
    return driver_error(Call::ctx_push_current, CudaContext::kContextDestroyed);
  return status_of(Call::ctx_push_current,
                   static_cast<std::int32_t>(context_->api().ctx_push_current(context_->handle())));
}

Result<ContextHandle> CudaDriver::ctx_pop_current() {
  CUcontext popped = nullptr;
  const auto native = static_cast<std::int32_t>(context_->api().ctx_pop_current(&popped));
  if (native != 0) return driver_error(Call::ctx_pop_current, native);
  return ContextHandle{number(popped)};
}

ContextHandle CudaDriver::context_handle() const noexcept { return {number(context_->handle())}; }

Status CudaDriver::primary_ctx_reset() {
  constexpr auto call = Call::primary_ctx_reset;
  if (context_->is_dead()) return driver_error(call, CudaContext::kContextDestroyed);
  const auto native =
      static_cast<std::int32_t>(context_->api().primary_ctx_reset(context_->device()));
  if (native == 0) context_->mark_dead();
  return status_of(call, native);
}

std::uint64_t CudaDriver::log_address(const std::byte* ptr) const noexcept { return number(ptr); }

}  // namespace emm
