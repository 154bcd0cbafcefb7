#include "driver/sim/sim_driver.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "driver/sim/memory_access.hpp"
#include "driver/sim/thread_contexts.hpp"

namespace emm {

using sim::Answer;
using sim::HostSpace;
using sim::MemoryAccess;
using sim::Nothing;
using Object = sim::SimDevice::Object;

namespace {

DevicePtr device_ptr(const std::byte* ptr) { return {reinterpret_cast<std::uintptr_t>(ptr)}; }
HostPtr host_ptr(DevicePtr ptr) { return reinterpret_cast<HostPtr>(ptr.value); }  // NOLINT

Answer<Nothing> ended(HostSpace::Freed freed) {
  return {.native = freed.native, .value = {}, .size = freed.size};
}

}  // namespace

Result<DevicePtr> SimDriver::mem_alloc(std::uint64_t size) {
  return platform_.conclude(Call::mem_alloc, device_.mem_alloc(context_, size));
}

Status SimDriver::mem_free(DevicePtr ptr) {
  constexpr auto call = Call::mem_free;
  if (device_.owns(ptr.value)) return platform_.conclude(call, device_.mem_free(context_, ptr));
  if (is_dead()) return platform_.conclude(call, {.native = sim::kContextDestroyed});
  if (!ptr) return platform_.conclude(call, Answer<Nothing>{});
  if (auto* owner = platform_.device_at(ptr.value))
    return platform_.conclude(call, owner->mem_free({}, ptr));
  return platform_.conclude(call,
                            ended(platform_.host().free(HostSpace::Kind::managed, host_ptr(ptr))));
}

Result<DevicePtr> SimDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  const bool known = attach == AttachFlags::global || attach == AttachFlags::host;
  Answer<DevicePtr> answer{
      .native = is_dead() ? sim::kContextDestroyed : sim::kSuccess, .value = {}, .size = size};
  if (answer.native == sim::kSuccess && (size == 0 || !known)) answer.native = sim::kInvalidValue;
  if (answer.native == sim::kSuccess) {
    answer.value = device_ptr(platform_.host().allocate(HostSpace::Kind::managed, size, context_));
    if (!answer.value) answer.native = sim::kOutOfMemory;
  }
  return platform_.conclude(Call::mem_alloc_managed, answer);
}

Result<HostPtr> SimDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags) {
  Answer<HostPtr> answer{
      .native = is_dead() ? sim::kContextDestroyed : sim::kSuccess, .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.value = platform_.host().allocate(HostSpace::Kind::page_locked, size, context_);
    if (answer.value == nullptr) answer.native = sim::kOutOfMemory;
  }
  return platform_.conclude(Call::mem_host_alloc, answer);
}

Status SimDriver::mem_free_host(HostPtr ptr) {
  if (is_dead()) return platform_.conclude(Call::mem_free_host, {.native = sim::kContextDestroyed});
  if (ptr == nullptr) return platform_.conclude(Call::mem_free_host, Answer<Nothing>{});
  return platform_.conclude(Call::mem_free_host,
                            ended(platform_.host().free(HostSpace::Kind::page_locked, ptr)));
}

Status SimDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  Answer<Nothing> answer{.native = is_dead() ? sim::kContextDestroyed : sim::kSuccess,
                         .value = {},
                         .size = range.size};
  // There are no devices but these, so no memory of another's to register.
  if (answer.native == sim::kSuccess && flags.io) answer.native = sim::kNotSupported;
  if (answer.native == sim::kSuccess)
    answer.native = platform_.host().register_range(range, context_);
  return platform_.conclude(Call::mem_host_register, answer);
}

Status SimDriver::mem_host_unregister(HostPtr ptr) {
  if (is_dead())
    return platform_.conclude(Call::mem_host_unregister, {.native = sim::kContextDestroyed});
  return platform_.conclude(Call::mem_host_unregister, ended(platform_.host().unregister(ptr)));
}

Result<DevicePtr> SimDriver::mem_host_get_device_pointer(HostPtr ptr) {
  Answer<DevicePtr> answer{.native = sim::kSuccess, .value = device_ptr(ptr)};
  if (is_dead()) {
    answer.native = sim::kContextDestroyed;
  } else if (!platform_.host().find(answer.value.value)) {
    answer.native = sim::kInvalidValue;
  }
  return platform_.conclude(Call::mem_host_get_device_pointer, answer);
}

Result<MemoryInfo> SimDriver::mem_get_info() {
  return platform_.conclude(Call::mem_get_info, device_.mem_get_info(context_));
}

Result<AddressRange> SimDriver::mem_get_address_range(DevicePtr ptr) {
  Answer<AddressRange> answer;
  if (is_dead()) {
    answer.native = sim::kContextDestroyed;
  } else if (auto* owner = platform_.device_at(ptr.value)) {
    answer = owner->mem_get_address_range(ptr);
  } else if (const auto found = platform_.host().find(ptr.value)) {
    answer.value = {.base = {found->base}, .size = found->size};
  } else {
    answer.native = sim::kNotFound;
  }
  return platform_.conclude(Call::mem_get_address_range, answer);
}

Result<IpcMemHandle> SimDriver::ipc_get_mem_handle(DevicePtr ptr) {
  Answer<IpcMemHandle> answer{.native = sim::kInvalidValue};
  if (is_dead()) {
    answer.native = sim::kContextDestroyed;
  } else if (auto* owner = platform_.device_at(ptr.value)) {
    answer = owner->ipc_get_mem_handle(ptr);
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

// A device is no peer of its own: cuDeviceCanAccessPeer of one device and itself is 0.
Result<bool> SimDriver::can_access_peer(const DeviceIdentity& peer) {
  Answer<bool> answer{.native = sim::kInvalidDevice};
  for (int other = 0; other < platform_.device_count(); ++other) {
    if (platform_.identity(other) == peer)
      answer = {sim::kSuccess, other != ordinal_ && platform_.options().peers};
  }
  return platform_.conclude(Call::can_access_peer, answer);
}

Status SimDriver::set(Call call, DevicePtr ptr, std::uint32_t value, std::uint64_t size) {
  Answer<Nothing> answer{
      .native = is_dead() ? sim::kContextDestroyed : sim::kSuccess, .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.native = MemoryAccess(platform_, ptr).fill(ptr, value, size);
  }
  return platform_.conclude(call, answer);
}

Status SimDriver::memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) {
  return set(Call::memset_d8, ptr, value * 0x01010101u, size);
}

Status SimDriver::memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) {
  if (!is_dead() && (ptr.value % 4 != 0 || count > ~std::uint64_t{0} / 4)) {
    return platform_.conclude(Call::memset_d32, {.native = sim::kInvalidValue});
  }
  return set(Call::memset_d32, ptr, value, count * 4);
}

Status SimDriver::memcpy_htod(DevicePtr to, std::span<const std::byte> from) {
  Answer<Nothing> answer{.native = is_dead() ? sim::kContextDestroyed : sim::kSuccess,
                         .value = {},
                         .size = from.size()};
  if (answer.native == sim::kSuccess && !from.empty())
    answer.native = MemoryAccess(platform_, to).write(to, from);
  return platform_.conclude(Call::memcpy_htod, answer);
}

Status SimDriver::memcpy_dtoh(std::span<std::byte> to, DevicePtr from) {
  Answer<Nothing> answer{
      .native = is_dead() ? sim::kContextDestroyed : sim::kSuccess, .value = {}, .size = to.size()};
  if (answer.native == sim::kSuccess && !to.empty())
    answer.native = MemoryAccess(platform_, from).read(from, to);
  return platform_.conclude(Call::memcpy_dtoh, answer);
}

Status SimDriver::memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) {
  Answer<Nothing> answer{
      .native = is_dead() ? sim::kContextDestroyed : sim::kSuccess, .value = {}, .size = size};
  if (answer.native == sim::kSuccess && size != 0) {
    answer.native = MemoryAccess(platform_, to, from).copy(to, from, size);
  }
  return platform_.conclude(Call::memcpy_dtod, answer);
}

Result<EventHandle> SimDriver::event_create() {
  const auto made = device_.create(context_, Object::event);
  return platform_.conclude(Call::event_create, Answer<EventHandle>{made.native, {made.value}});
}

Status SimDriver::event_destroy(EventHandle event) {
  return platform_.conclude(Call::event_destroy,
                            device_.destroy(context_, Object::event, event.value));
}

Result<StreamHandle> SimDriver::stream_create(StreamKind) {
  const auto made = device_.create(context_, Object::stream);
  return platform_.conclude(Call::stream_create, Answer<StreamHandle>{made.native, {made.value}});
}

Status SimDriver::stream_destroy(StreamHandle stream) {
  return platform_.conclude(Call::stream_destroy,
                            device_.destroy(context_, Object::stream, stream.value));
}

// Calls are done when they return, so a stream has nothing left to wait for.
Status SimDriver::stream_synchronize(StreamHandle stream) {
  if (stream.value == 0) {
    return platform_.conclude(Call::stream_synchronize,
                              {.native = is_dead() ? sim::kContextDestroyed : sim::kSuccess});
  }
  return platform_.conclude(Call::stream_synchronize,
                            device_.check(context_, Object::stream, stream.value));
}

// Loading is lazy: what is no image is found out when it is used.
Result<LibraryHandle> SimDriver::library_load(std::span<const std::byte>) {
  const auto made = device_.create(context_, Object::library);
  return platform_.conclude(Call::library_load, Answer<LibraryHandle>{made.native, {made.value}});
}

Status SimDriver::library_unload(LibraryHandle library) {
  return platform_.conclude(Call::library_unload,
                            device_.destroy(context_, Object::library, library.value));
}

Status SimDriver::ctx_synchronize() {
  return platform_.conclude(Call::ctx_synchronize,
                            {.native = is_dead() ? sim::kContextDestroyed : sim::kSuccess});
}

Status SimDriver::ctx_push_current() {
  if (is_dead())
    return platform_.conclude(Call::ctx_push_current, {.native = sim::kContextDestroyed});
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
  return platform_.conclude(Call::primary_ctx_reset, device_.reset(context_));
}

std::uint64_t SimDriver::log_address(const std::byte* ptr) const noexcept {
  return platform_.host().log_address(ptr);
}

}  // namespace emm
