#include "driver/sim/sim_driver.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "driver/call.hpp"
#include "driver/sim/free_memory.hpp"
#include "driver/sim/memory_access.hpp"
#include "driver/sim/thread_contexts.hpp"

namespace emm {

using sim::Answer;
using sim::HostSpace;
using sim::MemoryAccess;
using sim::Nothing;

namespace {

DevicePtr device_ptr(const std::byte* ptr) { return {reinterpret_cast<std::uintptr_t>(ptr)}; }

Answer<Nothing> ended(HostSpace::Freed freed) {
  return {.native = freed.native, .value = {}, .size = freed.size};
}

}  // namespace

Result<DevicePtr> SimDriver::mem_alloc(std::uint64_t size) {
  return platform_.conclude(Call::mem_alloc, device_.mem_alloc(context_, size));
}

Status SimDriver::mem_free(DevicePtr ptr) {
  return platform_.conclude(Call::mem_free, sim::free_memory(platform_, asker(), ptr));
}

Result<DevicePtr> SimDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  const bool known = attach == AttachFlags::global || attach == AttachFlags::host;
  Answer<DevicePtr> answer{.native = state(), .value = {}, .size = size};
  if (answer.native == sim::kSuccess && (size == 0 || !known)) answer.native = sim::kInvalidValue;
  if (answer.native == sim::kSuccess) {
    answer.value = device_ptr(platform_.host().allocate(HostSpace::Kind::managed, size, context_));
    if (!answer.value) answer.native = sim::kOutOfMemory;
  }
  return platform_.conclude(Call::mem_alloc_managed, answer);
}

Result<HostPtr> SimDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags) {
  Answer<HostPtr> answer{.native = state(), .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.value = platform_.host().allocate(HostSpace::Kind::page_locked, size, context_);
    if (answer.value == nullptr) answer.native = sim::kOutOfMemory;
  }
  return platform_.conclude(Call::mem_host_alloc, answer);
}

Status SimDriver::mem_free_host(HostPtr ptr) {
  Answer<Nothing> answer{.native = finish_all()};
  if (answer.native == sim::kSuccess && ptr != nullptr)
    answer = ended(platform_.host().free(HostSpace::Kind::page_locked, ptr));
  return platform_.conclude(Call::mem_free_host, answer);
}

Status SimDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  Answer<Nothing> answer{.native = state(), .value = {}, .size = range.size};
  // There are no I/O devices whose memory could be registered.
  if (answer.native == sim::kSuccess && flags.io) answer.native = sim::kNotSupported;
  if (answer.native == sim::kSuccess)
    answer.native = platform_.host().register_range(range, context_);
  return platform_.conclude(Call::mem_host_register, answer);
}

Status SimDriver::mem_host_unregister(HostPtr ptr) {
  Answer<Nothing> answer{.native = finish_all()};
  if (answer.native == sim::kSuccess) answer = ended(platform_.host().unregister(ptr));
  return platform_.conclude(Call::mem_host_unregister, answer);
}

Result<DevicePtr> SimDriver::mem_host_get_device_pointer(HostPtr ptr) {
  Answer<DevicePtr> answer{.native = state(), .value = device_ptr(ptr)};
  if (answer.native == sim::kSuccess && !platform_.host().find(answer.value.value))
    answer.native = sim::kInvalidValue;
  return platform_.conclude(Call::mem_host_get_device_pointer, answer);
}

Result<MemoryInfo> SimDriver::mem_get_info() {
  return platform_.conclude(Call::mem_get_info, device_.mem_get_info(context_));
}

Result<AddressRange> SimDriver::mem_get_address_range(DevicePtr ptr) {
  Answer<AddressRange> answer{.native = state()};
  if (answer.native != sim::kSuccess) {
    return platform_.conclude(Call::mem_get_address_range, answer);
  } else if (auto* owner = platform_.device_at(ptr.value)) {
    answer = owner->mem_get_address_range(ptr);
  } else if (sim::VirtualMemory::owns(ptr.value)) {
    if (platform_.pools().owns(ptr)) {
      const auto found = platform_.pools().find(ptr);
      answer = {.native = found.native, .value = found.range};
    } else {
      answer = platform_.virtual_memory().find(ptr);
    }
  } else if (const auto found = platform_.host().find(ptr.value)) {
    answer.value = {.base = {found->base}, .size = found->size};
  } else {
    answer.native = sim::kNotFound;
  }
  return platform_.conclude(Call::mem_get_address_range, answer);
}

Result<IpcMemHandle> SimDriver::ipc_get_mem_handle(DevicePtr ptr) {
  Answer<IpcMemHandle> answer{.native = state()};
  if (answer.native == sim::kSuccess) {
    auto* owner = platform_.device_at(ptr.value);
    answer = owner != nullptr ? owner->ipc_get_mem_handle(ptr)
                              : Answer<IpcMemHandle>{.native = sim::kInvalidValue};
  }
  return platform_.conclude(Call::ipc_get_mem_handle, answer);
}

Result<DevicePtr> SimDriver::ipc_open_mem_handle(const IpcMemHandle& handle) {
  return platform_.conclude(Call::ipc_open_mem_handle,
                            device_.ipc_open_mem_handle(context_, handle));
}

Status SimDriver::ipc_close_mem_handle(DevicePtr ptr) {
  return platform_.conclude(Call::ipc_close_mem_handle,
                            device_.ipc_close_mem_handle(context_, ptr));
}

// A device is not its own peer: cuDeviceCanAccessPeer returns 0 for a device and itself.
Result<bool> SimDriver::can_access_peer(const DeviceIdentity& peer) {
  Answer<bool> answer{.native = sim::kInvalidDevice};
  for (int other = 0; other < platform_.device_count(); ++other) {
    if (platform_.identity(other) == peer)
      answer = {sim::kSuccess, other != ordinal() && platform_.options().peers};
  }
  return platform_.conclude(Call::can_access_peer, answer);
}

// Synchronous calls are work on the legacy default stream, so they wait like that stream.
std::int32_t SimDriver::finish_before() {
  platform_.scheduler().finish_blocking(ordinal());
  return state();
}

std::int32_t SimDriver::finish_all() {
  platform_.scheduler().finish(ordinal());
  return state();
}

Status SimDriver::set(Call call, DevicePtr ptr, std::uint32_t value, std::uint64_t size) {
  Answer<Nothing> answer{.native = finish_before(), .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.native = MemoryAccess(platform_, ptr).fill(ptr, value, size);
    platform_.pools().worked(asker());
  }
  return platform_.conclude(call, answer);
}

Status SimDriver::memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) {
  return set(Call::memset_d8, ptr, value * 0x01010101u, size);
}

Status SimDriver::memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) {
  if (state() == sim::kSuccess && (ptr.value % 4 != 0 || count > ~std::uint64_t{0} / 4)) {
    return platform_.conclude(Call::memset_d32, {.native = sim::kInvalidValue});
  }
  return set(Call::memset_d32, ptr, value, count * 4);
}

Status SimDriver::memcpy_htod(DevicePtr to, std::span<const std::byte> from) {
  Answer<Nothing> answer{.native = finish_before(), .value = {}, .size = from.size()};
  if (answer.native == sim::kSuccess && !from.empty())
    answer.native = MemoryAccess(platform_, to).write(to, from);
  return platform_.conclude(Call::memcpy_htod, answer);
}

Status SimDriver::memcpy_dtoh(std::span<std::byte> to, DevicePtr from) {
  Answer<Nothing> answer{.native = finish_before(), .value = {}, .size = to.size()};
  if (answer.native == sim::kSuccess && !to.empty())
    answer.native = MemoryAccess(platform_, from).read(from, to);
  return platform_.conclude(Call::memcpy_dtoh, answer);
}

Status SimDriver::memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) {
  Answer<Nothing> answer{.native = finish_before(), .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.native = MemoryAccess(platform_, to, from).copy(to, from, size);
  }
  return platform_.conclude(Call::memcpy_dtod, answer);
}

Result<LibraryHandle> SimDriver::library_load(std::span<const std::byte>) {
  return platform_.conclude(Call::library_load, device_.library_load(context_));
}

Status SimDriver::library_unload(LibraryHandle library) {
  return platform_.conclude(Call::library_unload, device_.library_unload(context_, library));
}

Status SimDriver::ctx_push_current() {
  if (const auto native = state(); native != sim::kSuccess)
    return platform_.conclude(Call::ctx_push_current, {.native = native});
  sim::thread_contexts::push(platform_.number(), context_);
  return platform_.conclude(Call::ctx_push_current, Answer<Nothing>{});
}

Result<ContextHandle> SimDriver::ctx_pop_current() {
  const auto popped = sim::thread_contexts::pop(platform_.number());
  if (!popped)
    return platform_.conclude(Call::ctx_pop_current,
                              Answer<ContextHandle>{.native = sim::kInvalidContext});
  return platform_.conclude(Call::ctx_pop_current, Answer<ContextHandle>{sim::kSuccess, *popped});
}

Status SimDriver::primary_ctx_reset() {
  const auto answer = device_.reset(context_);
  if (answer.native == sim::kSuccess) {
    platform_.scheduler().drop(ordinal());
    platform_.pools().drop(ordinal());
    platform_.virtual_memory().drop(ordinal());
    platform_.forget_peer(ordinal());
  }
  return platform_.conclude(Call::primary_ctx_reset, answer);
}

std::uint64_t SimDriver::log_address(const std::byte* ptr) const noexcept {
  return platform_.host().log_address(ptr);
}

}  // namespace emm
