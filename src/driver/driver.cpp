#include "driver/driver.hpp"

namespace emm {
namespace {

Error missing(Call call) { return driver_error(call, 801); }

}  // namespace

Result<bool> Driver::stream_query(StreamHandle) { return missing(Call::stream_query); }
Status Driver::stream_wait_event(StreamHandle, EventHandle) {
  return missing(Call::stream_wait_event);
}
Status Driver::event_record(EventHandle, StreamHandle) { return missing(Call::event_record); }
Result<bool> Driver::event_query(EventHandle) { return missing(Call::event_query); }
Status Driver::event_synchronize(EventHandle) { return missing(Call::event_synchronize); }
Status Driver::memset_d8_async(DevicePtr, std::uint8_t, std::uint64_t, StreamHandle) {
  return missing(Call::memset_d8_async);
}
Status Driver::memcpy_dtod_async(DevicePtr, DevicePtr, std::uint64_t, StreamHandle) {
  return missing(Call::memcpy_dtod_async);
}
Status Driver::launch_host_func(StreamHandle, HostFunction, void*) {
  return missing(Call::launch_host_func);
}
Result<std::uint64_t> Driver::mem_get_allocation_granularity() {
  return missing(Call::mem_get_allocation_granularity);
}
Result<DevicePtr> Driver::mem_address_reserve(std::uint64_t, std::uint64_t, DevicePtr) {
  return missing(Call::mem_address_reserve);
}
Status Driver::mem_address_free(DevicePtr, std::uint64_t) {
  return missing(Call::mem_address_free);
}
Result<PhysicalHandle> Driver::mem_create(std::uint64_t) { return missing(Call::mem_create); }
Status Driver::mem_release(PhysicalHandle) { return missing(Call::mem_release); }
Status Driver::mem_map(DevicePtr, std::uint64_t, std::uint64_t, PhysicalHandle) {
  return missing(Call::mem_map);
}
Status Driver::mem_unmap(DevicePtr, std::uint64_t) { return missing(Call::mem_unmap); }
Status Driver::mem_set_access(DevicePtr, std::uint64_t, AccessFlags) {
  return missing(Call::mem_set_access);
}
Result<PoolHandle> Driver::mem_pool_create(std::uint64_t) { return missing(Call::mem_pool_create); }
Status Driver::mem_pool_destroy(PoolHandle) { return missing(Call::mem_pool_destroy); }
Result<PoolHandle> Driver::device_get_default_mem_pool() {
  return missing(Call::device_get_default_mem_pool);
}
Status Driver::mem_pool_trim_to(PoolHandle, std::uint64_t) {
  return missing(Call::mem_pool_trim_to);
}
Status Driver::mem_pool_set_attribute(PoolHandle, PoolAttribute, std::uint64_t) {
  return missing(Call::mem_pool_set_attribute);
}
Result<std::uint64_t> Driver::mem_pool_get_attribute(PoolHandle, PoolAttribute) {
  return missing(Call::mem_pool_get_attribute);
}
Result<DevicePtr> Driver::mem_alloc_async(std::uint64_t, StreamHandle) {
  return missing(Call::mem_alloc_async);
}
Result<DevicePtr> Driver::mem_alloc_from_pool_async(std::uint64_t, PoolHandle, StreamHandle) {
  return missing(Call::mem_alloc_from_pool_async);
}
Status Driver::mem_free_async(DevicePtr, StreamHandle) { return missing(Call::mem_free_async); }
Status Driver::ctx_enable_peer_access(ContextHandle) {
  return missing(Call::ctx_enable_peer_access);
}
Status Driver::ctx_disable_peer_access(ContextHandle) {
  return missing(Call::ctx_disable_peer_access);
}
Status Driver::memcpy_peer(DevicePtr, ContextHandle, DevicePtr, ContextHandle, std::uint64_t) {
  return missing(Call::memcpy_peer);
}

}  // namespace emm
