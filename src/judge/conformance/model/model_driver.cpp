#include "conformance/model/model_driver.hpp"

#include "driver/call.hpp"

namespace emm::model {
namespace {

Status status(Call call, std::int32_t result) {
  if (result != 0) return driver_error(call, result);
  return {};
}

}  // namespace

HostPtr to_host_pointer(std::uint64_t address) noexcept {
  return reinterpret_cast<HostPtr>(address);
}
std::uint64_t host_address(const std::byte* ptr) noexcept {
  return reinterpret_cast<std::uintptr_t>(ptr);
}

std::uint64_t ModelDriver::log_address(const std::byte* ptr) const noexcept {
  return host_address(ptr);
}

Error ModelDriver::refuse(Call call) { return driver_error(call, device_.log_unexpected(call)); }

Result<DevicePtr> ModelDriver::mem_alloc(std::uint64_t size) {
  DevicePtr ptr;
  const auto result = device_.mem_alloc(size, ptr.value);
  if (result != 0) return driver_error(Call::mem_alloc, result);
  return ptr;
}

Status ModelDriver::mem_free(DevicePtr ptr) {
  return status(Call::mem_free, device_.mem_free(ptr.value));
}

Result<DevicePtr> ModelDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  DevicePtr ptr;
  const auto result = device_.mem_alloc_managed(size, static_cast<unsigned>(attach), ptr.value);
  if (result != 0) return driver_error(Call::mem_alloc_managed, result);
  return ptr;
}

Result<HostPtr> ModelDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags flags) {
  std::uint64_t address = 0;
  const auto result = device_.mem_host_alloc(size, flags.bits(), address);
  if (result != 0) return driver_error(Call::mem_host_alloc, result);
  return to_host_pointer(address);
}

Status ModelDriver::mem_free_host(HostPtr ptr) {
  return status(Call::mem_free_host, device_.mem_free_host(host_address(ptr)));
}

Status ModelDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  return status(Call::mem_host_register,
                device_.mem_host_register(host_address(range.pointer), range.size, flags.bits()));
}

Status ModelDriver::mem_host_unregister(HostPtr ptr) {
  return status(Call::mem_host_unregister, device_.mem_host_unregister(host_address(ptr)));
}

Result<DevicePtr> ModelDriver::mem_host_get_device_pointer(HostPtr ptr) {
  DevicePtr device_ptr;
  const auto result = device_.mem_host_get_device_pointer(host_address(ptr), device_ptr.value);
  if (result != 0) return driver_error(Call::mem_host_get_device_pointer, result);
  return device_ptr;
}

Result<MemoryInfo> ModelDriver::mem_get_info() {
  MemoryInfo info;
  const auto result = device_.mem_get_info(info);
  if (result != 0) return driver_error(Call::mem_get_info, result);
  return info;
}

}  // namespace emm::model
