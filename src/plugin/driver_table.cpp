#include "plugin/driver_table.hpp"

#include <algorithm>

#include "plugin/abi.hpp"

namespace emm::plugin {
namespace {

Driver& of(void* user) noexcept { return static_cast<DriverTable*>(user)->driver(); }
Runtime& runtime_of(void* user) noexcept { return static_cast<DriverTable*>(user)->runtime(); }
Clock& clock_of(void* user) noexcept { return static_cast<HostTable*>(user)->clock(); }
ManagerObserver& observer_of(void* user) noexcept {
  return static_cast<HostTable*>(user)->observer();
}

emm_status answer(const Status& done) noexcept {
  return done ? EMM_SUCCESS : status_of(done.error());
}

// A value into what the caller gave for it; nothing is written where the call failed.
template <class Handle>
emm_status give(const Result<Handle>& value, std::uint64_t* into) noexcept {
  if (!value) return status_of(value.error());
  *into = value->value;
  return EMM_SUCCESS;
}
emm_status give(const Result<std::uint64_t>& value, std::uint64_t* into) noexcept {
  if (!value) return status_of(value.error());
  *into = *value;
  return EMM_SUCCESS;
}
emm_status give(const Result<HostPtr>& value, void** into) noexcept {
  if (!value) return status_of(value.error());
  *into = *value;
  return EMM_SUCCESS;
}
emm_status give(const Result<MemoryInfo>& info, std::uint64_t* free,
                std::uint64_t* total) noexcept {
  if (!info) return status_of(info.error());
  *free = info->free;
  *total = info->total;
  return EMM_SUCCESS;
}
/// False is EMM_NOT_READY.
emm_status ready(const Result<bool>& done) noexcept {
  if (!done) return status_of(done.error());
  return *done ? EMM_SUCCESS : EMM_NOT_READY;
}

HostPtr host(void* ptr) noexcept { return static_cast<HostPtr>(ptr); }

IpcMemHandle handle_of(const unsigned char* bytes) noexcept {
  IpcMemHandle handle;
  std::memcpy(handle.bytes.data(), bytes, handle.bytes.size());
  return handle;
}

using user_t = void*;
using u64 = std::uint64_t;
using u32 = std::uint32_t;

void put_memory(emm_driver_v1& table) noexcept {
  table.mem_alloc = [](user_t user, u64 size, u64* ptr) {
    return give(of(user).mem_alloc(size), ptr);
  };
  table.mem_free = [](user_t user, u64 ptr) { return answer(of(user).mem_free({ptr})); };
  table.mem_alloc_managed = [](user_t user, u64 size, u32 attach, u64* ptr) {
    return give(of(user).mem_alloc_managed(size, static_cast<AttachFlags>(attach)), ptr);
  };
  table.mem_host_alloc = [](user_t user, u64 size, u32 flags, void** ptr) {
    return give(of(user).mem_host_alloc(size, host_alloc_flags(flags)), ptr);
  };
  table.mem_free_host = [](user_t user, void* ptr) {
    return answer(of(user).mem_free_host(host(ptr)));
  };
  table.mem_host_register = [](user_t user, void* ptr, u64 size, u32 flags) {
    return answer(of(user).mem_host_register({.pointer = host(ptr), .size = size},
                                             host_register_flags(flags)));
  };
  table.mem_host_unregister = [](user_t user, void* ptr) {
    return answer(of(user).mem_host_unregister(host(ptr)));
  };
  table.mem_host_get_device_pointer = [](user_t user, void* ptr, u64* device) {
    return give(of(user).mem_host_get_device_pointer(host(ptr)), device);
  };
  table.mem_get_info = [](user_t user, u64* free, u64* total) {
    return give(of(user).mem_get_info(), free, total);
  };
  table.mem_get_address_range = [](user_t user, u64 ptr, u64* base, u64* size) -> emm_status {
    const auto range = of(user).mem_get_address_range({ptr});
    if (!range) return status_of(range.error());
    *base = range->base.value;
    *size = range->size;
    return EMM_SUCCESS;
  };
  table.ipc_get_mem_handle = [](user_t user, u64 ptr, unsigned char* bytes) -> emm_status {
    const auto handle = of(user).ipc_get_mem_handle({ptr});
    if (!handle) return status_of(handle.error());
    std::memcpy(bytes, handle->bytes.data(), handle->bytes.size());
    return EMM_SUCCESS;
  };
  table.ipc_open_mem_handle = [](user_t user, const unsigned char* bytes, u64* ptr) {
    return give(of(user).ipc_open_mem_handle(handle_of(bytes)), ptr);
  };
  table.ipc_close_mem_handle = [](user_t user, u64 ptr) {
    return answer(of(user).ipc_close_mem_handle({ptr}));
  };
  table.memset_d8 = [](user_t user, u64 ptr, std::uint8_t value, u64 size) {
    return answer(of(user).memset_d8({ptr}, value, size));
  };
  table.memset_d32 = [](user_t user, u64 ptr, u32 value, u64 count) {
    return answer(of(user).memset_d32({ptr}, value, count));
  };
  table.memcpy_htod = [](user_t user, u64 to, const void* from, u64 size) {
    return answer(of(user).memcpy_htod({to}, {static_cast<const std::byte*>(from), size}));
  };
  table.memcpy_dtoh = [](user_t user, void* to, u64 from, u64 size) {
    return answer(of(user).memcpy_dtoh({host(to), size}, {from}));
  };
  table.memcpy_dtod = [](user_t user, u64 to, u64 from, u64 size) {
    return answer(of(user).memcpy_dtod({to}, {from}, size));
  };
}

void put_objects(emm_driver_v1& table) noexcept {
  table.event_create = [](user_t user, u64* event) { return give(of(user).event_create(), event); };
  table.event_destroy = [](user_t user, u64 event) {
    return answer(of(user).event_destroy({event}));
  };
  table.stream_create = [](user_t user, u32 flags, u64* stream) {
    return give(of(user).stream_create(static_cast<StreamKind>(flags)), stream);
  };
  table.stream_destroy = [](user_t user, u64 stream) {
    return answer(of(user).stream_destroy({stream}));
  };
  table.stream_synchronize = [](user_t user, u64 stream) {
    return answer(of(user).stream_synchronize({stream}));
  };
  table.library_load = [](user_t user, const void* image, u64 size, u64* library) {
    return give(of(user).library_load({static_cast<const std::byte*>(image), size}), library);
  };
  table.library_unload = [](user_t user, u64 library) {
    return answer(of(user).library_unload({library}));
  };
  table.ctx_synchronize = [](user_t user) { return answer(of(user).ctx_synchronize()); };
  table.ctx_push_current = [](user_t user) { return answer(of(user).ctx_push_current()); };
  table.ctx_pop_current = [](user_t user, u64* context) {
    return give(of(user).ctx_pop_current(), context);
  };

  table.context_handle = [](user_t user) { return of(user).context_handle().value; };
  table.device_identity = [](user_t user, std::int32_t* pci) {
    const auto identity = of(user).device_identity();
    pci[0] = identity.pci_domain_id;
    pci[1] = identity.pci_bus_id;
    pci[2] = identity.pci_device_id;
  };
  table.device_name = [](user_t user) { return static_cast<DriverTable*>(user)->device_name(); };
  table.device_ordinal = [](user_t user) -> std::int32_t { return of(user).device_ordinal(); };
  table.can_map_host_memory = [](user_t user) -> std::int32_t {
    return of(user).can_map_host_memory() ? 1 : 0;
  };
  table.can_access_peer = [](user_t user, const std::int32_t* pci,
                             std::int32_t* can) -> emm_status {
    const auto reachable = of(user).can_access_peer(
        {.pci_domain_id = pci[0], .pci_bus_id = pci[1], .pci_device_id = pci[2]});
    if (!reachable) return status_of(reachable.error());
    *can = *reachable ? 1 : 0;
    return EMM_SUCCESS;
  };
  table.held_bytes = [](user_t user) { return of(user).held_bytes(); };
  table.largest_free_bytes = [](user_t user) { return of(user).largest_free_bytes(); };
  table.log_address = [](user_t user, const void* ptr) {
    return of(user).log_address(static_cast<const std::byte*>(ptr));
  };
}

void put_runtime(emm_driver_v1& table) noexcept {
  table.runtime_malloc = [](user_t user, u64 size, u64* ptr) {
    return give(runtime_of(user).malloc(size), ptr);
  };
  table.runtime_free = [](user_t user, u64 ptr) { return answer(runtime_of(user).free({ptr})); };
  table.runtime_mem_get_info = [](user_t user, u64* free, u64* total) {
    return give(runtime_of(user).mem_get_info(), free, total);
  };
}

void put_streams(emm_driver_v1& table) noexcept {
  table.stream_query = [](user_t user, u64 stream) {
    return ready(of(user).stream_query({stream}));
  };
  table.stream_wait_event = [](user_t user, u64 stream, u64 event) {
    return answer(of(user).stream_wait_event({stream}, {event}));
  };
  table.event_record = [](user_t user, u64 event, u64 stream) {
    return answer(of(user).event_record({event}, {stream}));
  };
  table.event_query = [](user_t user, u64 event) { return ready(of(user).event_query({event})); };
  table.event_synchronize = [](user_t user, u64 event) {
    return answer(of(user).event_synchronize({event}));
  };
  table.memset_d8_async = [](user_t user, u64 ptr, std::uint8_t value, u64 size, u64 stream) {
    return answer(of(user).memset_d8_async({ptr}, value, size, {stream}));
  };
  table.memcpy_dtod_async = [](user_t user, u64 to, u64 from, u64 size, u64 stream) {
    return answer(of(user).memcpy_dtod_async({to}, {from}, size, {stream}));
  };
  table.launch_host_func = [](user_t user, u64 stream, void (*function)(void*), void* argument) {
    return answer(of(user).launch_host_func({stream}, function, argument));
  };
}

void put_virtual_memory(emm_driver_v1& table) noexcept {
  table.mem_get_allocation_granularity = [](user_t user, u64* granularity) {
    return give(of(user).mem_get_allocation_granularity(), granularity);
  };
  table.mem_address_reserve = [](user_t user, u64 size, u64 alignment, u64 wish, u64* ptr) {
    return give(of(user).mem_address_reserve(size, alignment, {wish}), ptr);
  };
  table.mem_address_free = [](user_t user, u64 ptr, u64 size) {
    return answer(of(user).mem_address_free({ptr}, size));
  };
  table.mem_create = [](user_t user, u64 size, u64* physical) {
    return give(of(user).mem_create(size), physical);
  };
  table.mem_release = [](user_t user, u64 physical) {
    return answer(of(user).mem_release({physical}));
  };
  table.mem_map = [](user_t user, u64 ptr, u64 size, u64 offset, u64 physical) {
    return answer(of(user).mem_map({ptr}, size, offset, {physical}));
  };
  table.mem_unmap = [](user_t user, u64 ptr, u64 size) {
    return answer(of(user).mem_unmap({ptr}, size));
  };
  table.mem_set_access = [](user_t user, u64 ptr, u64 size, u32 access) {
    return answer(of(user).mem_set_access({ptr}, size, static_cast<AccessFlags>(access)));
  };
}

void put_pools_and_peers(emm_driver_v1& table) noexcept {
  table.mem_pool_create = [](user_t user, u64 max_size, u64* pool) {
    return give(of(user).mem_pool_create(max_size), pool);
  };
  table.mem_pool_destroy = [](user_t user, u64 pool) {
    return answer(of(user).mem_pool_destroy({pool}));
  };
  table.device_get_default_mem_pool = [](user_t user, u64* pool) {
    return give(of(user).device_get_default_mem_pool(), pool);
  };
  table.mem_pool_trim_to = [](user_t user, u64 pool, u64 keep) {
    return answer(of(user).mem_pool_trim_to({pool}, keep));
  };
  table.mem_pool_set_attribute = [](user_t user, u64 pool, u32 attribute, u64 value) {
    return answer(
        of(user).mem_pool_set_attribute({pool}, static_cast<PoolAttribute>(attribute), value));
  };
  table.mem_pool_get_attribute = [](user_t user, u64 pool, u32 attribute, u64* value) {
    return give(of(user).mem_pool_get_attribute({pool}, static_cast<PoolAttribute>(attribute)),
                value);
  };
  table.mem_alloc_async = [](user_t user, u64 size, u64 stream, u64* ptr) {
    return give(of(user).mem_alloc_async(size, {stream}), ptr);
  };
  table.mem_alloc_from_pool_async = [](user_t user, u64 size, u64 pool, u64 stream, u64* ptr) {
    return give(of(user).mem_alloc_from_pool_async(size, {pool}, {stream}), ptr);
  };
  table.mem_free_async = [](user_t user, u64 ptr, u64 stream) {
    return answer(of(user).mem_free_async({ptr}, {stream}));
  };
  table.ctx_enable_peer_access = [](user_t user, u64 peer) {
    return answer(of(user).ctx_enable_peer_access({peer}));
  };
  table.ctx_disable_peer_access = [](user_t user, u64 peer) {
    return answer(of(user).ctx_disable_peer_access({peer}));
  };
  table.memcpy_peer = [](user_t user, u64 to, u64 to_context, u64 from, u64 from_context,
                         u64 size) {
    return answer(of(user).memcpy_peer({to}, {to_context}, {from}, {from_context}, size));
  };
}

}  // namespace

DriverTable::DriverTable(Driver& driver, Runtime* runtime)
    : driver_(driver), runtime_(runtime), device_name_(driver.device_name()), table_{} {
  table_.struct_size = sizeof table_;
  table_.user = this;
  put_memory(table_);
  put_objects(table_);
  if (runtime != nullptr) put_runtime(table_);
  put_streams(table_);
  put_virtual_memory(table_);
  put_pools_and_peers(table_);
}

HostTable::HostTable(Clock* clock, ManagerObserver* observer) noexcept
    : clock_(clock), observer_(observer), table_{} {
  table_.struct_size = sizeof table_;
  table_.user = this;
  if (clock != nullptr) table_.now_ns = [](void* user) { return clock_of(user).now_ns(); };
  if (observer == nullptr) return;
  table_.pending_added = [](void* user, const char* call, u64 size) {
    for (std::size_t i = 0; i < kCallCount; ++i) {
      const auto known = static_cast<Call>(i);
      if (call == nullptr || call_info(known).name != call) continue;
      observer_of(user).pending_added(known, size == EMM_NOT_KNOWN ? std::optional<u64>() : size);
    }
  };
  table_.flushed = [](void* user, u64 count, u64 bytes) {
    observer_of(user).flushed(count, bytes);
  };
  table_.free_failed = [](void* user, emm_status status, const char* words) {
    Error error{.code = meaning_of(status), .native = status};
    if (words != nullptr) error.message = words;
    observer_of(user).free_failed(error);
  };
}

}  // namespace emm::plugin
