#include "libemm/table_driver.hpp"

#include <array>

#include "plugin/abi.hpp"

namespace emm::libemm {
namespace {

/// Makes `call` of the table; a slot that is not there is not supported.
template <class Slot, class... Args>
Status ask(Call call, Slot slot, Args... args) {
  const auto status = slot != nullptr ? slot(args...) : EMM_NOT_SUPPORTED;
  if (status == EMM_SUCCESS) return {};
  return driver_error(call, status);
}
/// As ask(), of a slot that gives a number in its last argument.
template <class Value, class Slot, class... Args>
Result<Value> get(Call call, Slot slot, Args... args) {
  std::uint64_t value = 0;
  if (auto done = ask(call, slot, args..., &value); !done) return std::move(done).error();
  return Value{value};
}
Result<MemoryInfo> get_info(Call call, decltype(emm_driver_v1::mem_get_info) slot, void* user) {
  MemoryInfo info;
  if (auto done = ask(call, slot, user, &info.free, &info.total); !done)
    return std::move(done).error();
  return info;
}
Result<bool> is_ready(Call call, emm_status status) {
  if (status == EMM_SUCCESS || status == EMM_NOT_READY) return status == EMM_SUCCESS;
  return driver_error(call, status);
}

std::array<std::int32_t, 3> pci(const DeviceIdentity& identity) noexcept {
  return {identity.pci_domain_id, identity.pci_bus_id, identity.pci_device_id};
}
const unsigned char* bytes(const IpcMemHandle& handle) noexcept {
  return reinterpret_cast<const unsigned char*>(handle.bytes.data());
}

}  // namespace

TableDriver::TableDriver(const emm_driver_v1& table) noexcept
    : table_(plugin::as_known_here(table)) {}

Result<DevicePtr> TableDriver::mem_alloc(std::uint64_t size) {
  return get<DevicePtr>(Call::mem_alloc, table_.mem_alloc, table_.user, size);
}
Status TableDriver::mem_free(DevicePtr ptr) {
  return ask(Call::mem_free, table_.mem_free, table_.user, ptr.value);
}
Result<DevicePtr> TableDriver::mem_alloc_managed(std::uint64_t size, AttachFlags attach) {
  return get<DevicePtr>(Call::mem_alloc_managed, table_.mem_alloc_managed, table_.user, size,
                        static_cast<std::uint32_t>(attach));
}
Result<HostPtr> TableDriver::mem_host_alloc(std::uint64_t size, HostAllocFlags flags) {
  void* ptr = nullptr;
  if (auto done =
          ask(Call::mem_host_alloc, table_.mem_host_alloc, table_.user, size, flags.bits(), &ptr);
      !done) {
    return std::move(done).error();
  }
  return static_cast<HostPtr>(ptr);
}
Status TableDriver::mem_free_host(HostPtr ptr) {
  return ask(Call::mem_free_host, table_.mem_free_host, table_.user, ptr);
}
Status TableDriver::mem_host_register(HostRange range, HostRegisterFlags flags) {
  return ask(Call::mem_host_register, table_.mem_host_register, table_.user, range.pointer,
             range.size, flags.bits());
}
Status TableDriver::mem_host_unregister(HostPtr ptr) {
  return ask(Call::mem_host_unregister, table_.mem_host_unregister, table_.user, ptr);
}
Result<DevicePtr> TableDriver::mem_host_get_device_pointer(HostPtr ptr) {
  return get<DevicePtr>(Call::mem_host_get_device_pointer, table_.mem_host_get_device_pointer,
                        table_.user, ptr);
}
Result<MemoryInfo> TableDriver::mem_get_info() {
  return get_info(Call::mem_get_info, table_.mem_get_info, table_.user);
}
Result<AddressRange> TableDriver::mem_get_address_range(DevicePtr ptr) {
  AddressRange range;
  auto done = ask(Call::mem_get_address_range, table_.mem_get_address_range, table_.user, ptr.value,
                  &range.base.value, &range.size);
  if (!done) return std::move(done).error();
  return range;
}

DeviceIdentity TableDriver::device_identity() const noexcept {
  std::array<std::int32_t, 3> ids{};
  if (table_.device_identity != nullptr) table_.device_identity(table_.user, ids.data());
  return {.pci_domain_id = ids[0], .pci_bus_id = ids[1], .pci_device_id = ids[2]};
}
std::string_view TableDriver::device_name() const noexcept {
  const char* name = table_.device_name != nullptr ? table_.device_name(table_.user) : nullptr;
  return name != nullptr ? name : "a device";
}
int TableDriver::device_ordinal() const noexcept {
  return table_.device_ordinal != nullptr ? table_.device_ordinal(table_.user) : 0;
}
bool TableDriver::can_map_host_memory() const noexcept {
  return table_.can_map_host_memory != nullptr && table_.can_map_host_memory(table_.user) != 0;
}

Result<IpcMemHandle> TableDriver::ipc_get_mem_handle(DevicePtr ptr) {
  IpcMemHandle handle;
  auto done = ask(Call::ipc_get_mem_handle, table_.ipc_get_mem_handle, table_.user, ptr.value,
                  const_cast<unsigned char*>(bytes(handle)));
  if (!done) return std::move(done).error();
  return handle;
}
Result<DevicePtr> TableDriver::ipc_open_mem_handle(const IpcMemHandle& handle) {
  return get<DevicePtr>(Call::ipc_open_mem_handle, table_.ipc_open_mem_handle, table_.user,
                        bytes(handle));
}
Status TableDriver::ipc_close_mem_handle(DevicePtr ptr) {
  return ask(Call::ipc_close_mem_handle, table_.ipc_close_mem_handle, table_.user, ptr.value);
}
Result<bool> TableDriver::can_access_peer(const DeviceIdentity& peer) {
  std::int32_t can = 0;
  const auto ids = pci(peer);
  auto done = ask(Call::can_access_peer, table_.can_access_peer, table_.user, ids.data(), &can);
  if (!done) return std::move(done).error();
  return can != 0;
}

Status TableDriver::memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) {
  return ask(Call::memset_d8, table_.memset_d8, table_.user, ptr.value, value, size);
}
Status TableDriver::memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) {
  return ask(Call::memset_d32, table_.memset_d32, table_.user, ptr.value, value, count);
}
Status TableDriver::memcpy_htod(DevicePtr to, std::span<const std::byte> from) {
  return ask(Call::memcpy_htod, table_.memcpy_htod, table_.user, to.value, from.data(),
             from.size());
}
Status TableDriver::memcpy_dtoh(std::span<std::byte> to, DevicePtr from) {
  return ask(Call::memcpy_dtoh, table_.memcpy_dtoh, table_.user, to.data(), from.value, to.size());
}
Status TableDriver::memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t size) {
  return ask(Call::memcpy_dtod, table_.memcpy_dtod, table_.user, to.value, from.value, size);
}

Result<EventHandle> TableDriver::event_create() {
  return get<EventHandle>(Call::event_create, table_.event_create, table_.user);
}
Status TableDriver::event_destroy(EventHandle event) {
  return ask(Call::event_destroy, table_.event_destroy, table_.user, event.value);
}
Result<StreamHandle> TableDriver::stream_create(StreamKind kind) {
  return get<StreamHandle>(Call::stream_create, table_.stream_create, table_.user,
                           static_cast<std::uint32_t>(kind));
}
Status TableDriver::stream_destroy(StreamHandle stream) {
  return ask(Call::stream_destroy, table_.stream_destroy, table_.user, stream.value);
}
Status TableDriver::stream_synchronize(StreamHandle stream) {
  return ask(Call::stream_synchronize, table_.stream_synchronize, table_.user, stream.value);
}
Result<LibraryHandle> TableDriver::library_load(std::span<const std::byte> image) {
  return get<LibraryHandle>(Call::library_load, table_.library_load, table_.user, image.data(),
                            image.size());
}
Status TableDriver::library_unload(LibraryHandle library) {
  return ask(Call::library_unload, table_.library_unload, table_.user, library.value);
}
Status TableDriver::ctx_synchronize() {
  return ask(Call::ctx_synchronize, table_.ctx_synchronize, table_.user);
}
Status TableDriver::ctx_push_current() {
  return ask(Call::ctx_push_current, table_.ctx_push_current, table_.user);
}
Result<ContextHandle> TableDriver::ctx_pop_current() {
  return get<ContextHandle>(Call::ctx_pop_current, table_.ctx_pop_current, table_.user);
}
ContextHandle TableDriver::context_handle() const noexcept {
  return {table_.context_handle != nullptr ? table_.context_handle(table_.user) : 0};
}
Status TableDriver::primary_ctx_reset() {
  return driver_error(Call::primary_ctx_reset, EMM_NOT_SUPPORTED);
}

Result<bool> TableDriver::stream_query(StreamHandle stream) {
  constexpr auto kCall = Call::stream_query;
  if (table_.stream_query == nullptr) return driver_error(kCall, EMM_NOT_SUPPORTED);
  return is_ready(kCall, table_.stream_query(table_.user, stream.value));
}
Status TableDriver::stream_wait_event(StreamHandle stream, EventHandle event) {
  return ask(Call::stream_wait_event, table_.stream_wait_event, table_.user, stream.value,
             event.value);
}
Status TableDriver::event_record(EventHandle event, StreamHandle stream) {
  return ask(Call::event_record, table_.event_record, table_.user, event.value, stream.value);
}
Result<bool> TableDriver::event_query(EventHandle event) {
  constexpr auto kCall = Call::event_query;
  if (table_.event_query == nullptr) return driver_error(kCall, EMM_NOT_SUPPORTED);
  return is_ready(kCall, table_.event_query(table_.user, event.value));
}
Status TableDriver::event_synchronize(EventHandle event) {
  return ask(Call::event_synchronize, table_.event_synchronize, table_.user, event.value);
}
Status TableDriver::memset_d8_async(DevicePtr ptr, std::uint8_t value, std::uint64_t size,
                                    StreamHandle stream) {
  return ask(Call::memset_d8_async, table_.memset_d8_async, table_.user, ptr.value, value, size,
             stream.value);
}
Status TableDriver::memcpy_dtod_async(DevicePtr to, DevicePtr from, std::uint64_t size,
                                      StreamHandle stream) {
  return ask(Call::memcpy_dtod_async, table_.memcpy_dtod_async, table_.user, to.value, from.value,
             size, stream.value);
}
Status TableDriver::launch_host_func(StreamHandle stream, HostFunction function, void* argument) {
  return ask(Call::launch_host_func, table_.launch_host_func, table_.user, stream.value, function,
             argument);
}

Result<std::uint64_t> TableDriver::mem_get_allocation_granularity() {
  return get<std::uint64_t>(Call::mem_get_allocation_granularity,
                            table_.mem_get_allocation_granularity, table_.user);
}
Result<DevicePtr> TableDriver::mem_address_reserve(std::uint64_t size, std::uint64_t alignment,
                                                   DevicePtr at) {
  return get<DevicePtr>(Call::mem_address_reserve, table_.mem_address_reserve, table_.user, size,
                        alignment, at.value);
}
Status TableDriver::mem_address_free(DevicePtr ptr, std::uint64_t size) {
  return ask(Call::mem_address_free, table_.mem_address_free, table_.user, ptr.value, size);
}
Result<PhysicalHandle> TableDriver::mem_create(std::uint64_t size) {
  return get<PhysicalHandle>(Call::mem_create, table_.mem_create, table_.user, size);
}
Status TableDriver::mem_release(PhysicalHandle handle) {
  return ask(Call::mem_release, table_.mem_release, table_.user, handle.value);
}
Status TableDriver::mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                            PhysicalHandle handle) {
  return ask(Call::mem_map, table_.mem_map, table_.user, ptr.value, size, offset, handle.value);
}
Status TableDriver::mem_unmap(DevicePtr ptr, std::uint64_t size) {
  return ask(Call::mem_unmap, table_.mem_unmap, table_.user, ptr.value, size);
}
Status TableDriver::mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) {
  return ask(Call::mem_set_access, table_.mem_set_access, table_.user, ptr.value, size,
             static_cast<std::uint32_t>(access));
}

Result<PoolHandle> TableDriver::mem_pool_create(std::uint64_t max_size) {
  return get<PoolHandle>(Call::mem_pool_create, table_.mem_pool_create, table_.user, max_size);
}
Status TableDriver::mem_pool_destroy(PoolHandle pool) {
  return ask(Call::mem_pool_destroy, table_.mem_pool_destroy, table_.user, pool.value);
}
Result<PoolHandle> TableDriver::device_get_default_mem_pool() {
  return get<PoolHandle>(Call::device_get_default_mem_pool, table_.device_get_default_mem_pool,
                         table_.user);
}
Status TableDriver::mem_pool_trim_to(PoolHandle pool, std::uint64_t keep) {
  return ask(Call::mem_pool_trim_to, table_.mem_pool_trim_to, table_.user, pool.value, keep);
}
Status TableDriver::mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                           std::uint64_t value) {
  return ask(Call::mem_pool_set_attribute, table_.mem_pool_set_attribute, table_.user, pool.value,
             static_cast<std::uint32_t>(attribute), value);
}
Result<std::uint64_t> TableDriver::mem_pool_get_attribute(PoolHandle pool,
                                                          PoolAttribute attribute) {
  return get<std::uint64_t>(Call::mem_pool_get_attribute, table_.mem_pool_get_attribute,
                            table_.user, pool.value, static_cast<std::uint32_t>(attribute));
}
Result<DevicePtr> TableDriver::mem_alloc_async(std::uint64_t size, StreamHandle stream) {
  return get<DevicePtr>(Call::mem_alloc_async, table_.mem_alloc_async, table_.user, size,
                        stream.value);
}
Result<DevicePtr> TableDriver::mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                                         StreamHandle stream) {
  return get<DevicePtr>(Call::mem_alloc_from_pool_async, table_.mem_alloc_from_pool_async,
                        table_.user, size, pool.value, stream.value);
}
Status TableDriver::mem_free_async(DevicePtr ptr, StreamHandle stream) {
  return ask(Call::mem_free_async, table_.mem_free_async, table_.user, ptr.value, stream.value);
}

Status TableDriver::ctx_enable_peer_access(ContextHandle peer) {
  return ask(Call::ctx_enable_peer_access, table_.ctx_enable_peer_access, table_.user, peer.value);
}
Status TableDriver::ctx_disable_peer_access(ContextHandle peer) {
  return ask(Call::ctx_disable_peer_access, table_.ctx_disable_peer_access, table_.user,
             peer.value);
}
Status TableDriver::memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                                ContextHandle from_context, std::uint64_t size) {
  return ask(Call::memcpy_peer, table_.memcpy_peer, table_.user, to.value, to_context.value,
             from.value, from_context.value, size);
}

std::uint64_t TableDriver::held_bytes() const noexcept {
  return table_.held_bytes != nullptr ? table_.held_bytes(table_.user) : 0;
}
std::uint64_t TableDriver::largest_free_bytes() const noexcept {
  return table_.largest_free_bytes != nullptr ? table_.largest_free_bytes(table_.user) : 0;
}
std::uint64_t TableDriver::log_address(const std::byte* ptr) const noexcept {
  if (table_.log_address != nullptr) return table_.log_address(table_.user, ptr);
  return reinterpret_cast<std::uint64_t>(ptr);
}

TableRuntime::TableRuntime(const emm_driver_v1& table) noexcept
    : table_(plugin::as_known_here(table)) {}

Result<DevicePtr> TableRuntime::malloc(std::uint64_t size) {
  return get<DevicePtr>(Call::runtime_malloc, table_.runtime_malloc, table_.user, size);
}
Status TableRuntime::free(DevicePtr ptr) {
  return ask(Call::runtime_free, table_.runtime_free, table_.user, ptr.value);
}
Result<MemoryInfo> TableRuntime::mem_get_info() {
  return get_info(Call::runtime_get_info, table_.runtime_mem_get_info, table_.user);
}

std::uint64_t TableClock::now_ns() const noexcept {
  return table_.now_ns != nullptr ? table_.now_ns(table_.user) : 0;
}

void TableObserver::pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
  if (table_.pending_added == nullptr) return;
  table_.pending_added(table_.user, call_info(dtor).name.data(), size.value_or(EMM_NOT_KNOWN));
}
void TableObserver::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  if (table_.flushed != nullptr) table_.flushed(table_.user, count, bytes);
}
void TableObserver::free_failed(const Error& error) noexcept {
  if (table_.free_failed == nullptr) return;
  table_.free_failed(table_.user, plugin::status_of(error), describe(error).c_str());
}

}  // namespace emm::libemm
