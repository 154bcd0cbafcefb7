#include "conformance/stub_driver.hpp"

#include <algorithm>
#include <cstring>

namespace emm::conformance {
namespace {

// A loopback handle holds the address that it was made from.
IpcMemHandle handle_of(DevicePtr ptr) noexcept {
  IpcMemHandle handle;
  std::memcpy(handle.bytes.data(), &ptr.value, sizeof ptr.value);
  return handle;
}

}  // namespace

CallHook& StubDriver::none() noexcept {
  static CallHook hook;
  return hook;
}

Result<DevicePtr> StubDriver::mem_alloc(std::uint64_t size) {
  if (repeats_last_address) return last_.load();
  auto ptr = inner_.mem_alloc(size);
  if (ptr) last_ = *ptr;
  return ptr;
}

Result<DevicePtr> StubDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  if (repeats_last_address) return last_.load();
  auto ptr = inner_.mem_alloc_managed(size, attach);
  if (ptr) last_ = *ptr;
  return ptr;
}

Result<HostPtr> StubDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags flags) {
  if (repeats_last_address) return last_host_.load();
  auto ptr = inner_.mem_host_alloc(size, flags);
  if (ptr) last_host_ = *ptr;
  return ptr;
}

Result<DevicePtr> StubDriver::mem_host_get_device_pointer(HostPtr ptr) {
  auto address = inner_.mem_host_get_device_pointer(ptr);
  if (address) *address = *address + host_to_device;
  return address;
}

Result<MemoryInfo> StubDriver::mem_get_info() {
  auto info = inner_.mem_get_info();
  if (info && total) *info = {.free = std::min(info->free, *total), .total = *total};
  return info;
}

bool StubDriver::can_map_host_memory() const noexcept {
  return maps_host_memory && inner_.can_map_host_memory();
}

Result<bool> StubDriver::can_access_peer(const DeviceIdentity& peer) {
  if (reaches_peers) return *reaches_peers;
  return inner_.can_access_peer(peer);
}

Result<IpcMemHandle> StubDriver::ipc_get_mem_handle(DevicePtr ptr) {
  if (!loops_back) return inner_.ipc_get_mem_handle(ptr);
  // The handle stands for the whole allocation
  const auto range = inner_.mem_get_address_range(ptr);
  return handle_of(range ? range->base : ptr);
}

Result<DevicePtr> StubDriver::ipc_open_mem_handle(const IpcMemHandle& handle) {
  if (!loops_back) return inner_.ipc_open_mem_handle(handle);
  DevicePtr ptr;
  std::memcpy(&ptr.value, handle.bytes.data(), sizeof ptr.value);
  return ptr;
}

Status StubDriver::ipc_close_mem_handle(DevicePtr ptr) {
  if (loops_back) return {};
  return inner_.ipc_close_mem_handle(ptr);
}

}  // namespace emm::conformance
