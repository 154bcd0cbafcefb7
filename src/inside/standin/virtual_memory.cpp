// Virtual memory and stream-ordered pools.
#include <cstring>

#include "standin/calls.hpp"
#include "standin/graph.hpp"

using namespace emm::standin;

extern "C" Code cuCtxPushCurrent_v2(ContextPtr context);
extern "C" Code cuCtxPopCurrent_v2(ContextPtr* context);

namespace {

/// CUmemLocation, and the first members of CUmemAllocationProp, CUmemAccessDesc and CUmemPoolProps.
/// The others are not read.
struct Location {
  int type = 0;
  int id = 0;
};
struct AllocationProp {
  int type = 0;
  int handle_types = 0;
  Location location;
};
struct AccessDesc {
  Location location;
  int flags = 0;
};
struct PoolProps {
  int type = 0;
  int handle_types = 0;
  Location location;
  void* security = nullptr;
  std::size_t max_size = 0;
};
// CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE.
constexpr int kPinned = 1, kDevice = 1;

bool is_here(const Location& location) {
  const auto* const context = Machine::current();
  return location.type == kDevice && location.id == (context != nullptr ? context->ordinal : 0);
}

/// A policy is an int; every other attribute has 64 bits.
bool is_policy(int attribute) { return attribute < 4; }

/// As in_context(). The driver's calls of virtual memory need no current context: a program's first
/// call may be one of them, as PyTorch's with expandable segments. The first device's own context
/// then serves. It is never released, because its memory lives on.
template <class... Calls>
Code in_some_context(Calls... calls) {
  auto* const machine = Machine::started();
  if (machine == nullptr || Machine::current() != nullptr) return in_context(calls...);
  auto* context = machine->retain(0);
  if (context == nullptr) return Machine::kInvalidDevice;
  if (const auto code = cuCtxPushCurrent_v2(context); code != Machine::kSuccess) return code;
  const auto code = in_context(calls...);
  cuCtxPopCurrent_v2(&context);
  return code;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProp* prop, int) {
  if (prop->type != kPinned) return Machine::kInvalidValue;
  return in_some_context(
      [](emm::Driver& driver) { return driver.mem_get_allocation_granularity(); },
      [&](std::uint64_t found) { *bytes = found; });
}
Code cuMemAddressReserve(Address* out, std::size_t size, std::size_t alignment, Address at,
                         unsigned long long flags) {
  if (flags != 0) return Machine::kInvalidValue;
  return in_some_context(
      [&](emm::Driver& driver) { return driver.mem_address_reserve(size, alignment, {at}); },
      [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
Code cuMemAddressFree(Address ptr, std::size_t size) {
  return in_some_context([&](emm::Driver& driver) { return driver.mem_address_free({ptr}, size); });
}
// Creates memory on the current context's device only.
Code cuMemCreate(Handle* out, std::size_t size, const AllocationProp* prop,
                 unsigned long long flags) {
  if (flags != 0 || prop->type != kPinned) return Machine::kInvalidValue;
  if (!is_here(prop->location)) return Machine::kNotSupported;
  return in_some_context([&](emm::Driver& driver) { return driver.mem_create(size); },
                         [&](emm::PhysicalHandle handle) { *out = handle.value; });
}
Code cuMemRelease(Handle handle) {
  return in_some_context([&](emm::Driver& driver) { return driver.mem_release({handle}); });
}
Code cuMemMap(Address ptr, std::size_t size, std::size_t offset, Handle handle,
              unsigned long long flags) {
  if (flags != 0) return Machine::kInvalidValue;
  return in_some_context(
      [&](emm::Driver& driver) { return driver.mem_map({ptr}, size, offset, {handle}); });
}
Code cuMemUnmap(Address ptr, std::size_t size) {
  return in_some_context([&](emm::Driver& driver) { return driver.mem_unmap({ptr}, size); });
}
Code cuMemSetAccess(Address ptr, std::size_t size, const AccessDesc* access, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_here(access[i].location)) return Machine::kNotSupported;
    const auto code = in_some_context([&](emm::Driver& driver) {
      return driver.mem_set_access({ptr}, size, static_cast<emm::AccessFlags>(access[i].flags));
    });
    if (code != Machine::kSuccess) return code;
  }
  return count != 0 ? Machine::kSuccess : Machine::kInvalidValue;
}

Code cuMemPoolCreate(Handle* out, const PoolProps* props) {
  if (!is_here(props->location)) return Machine::kNotSupported;
  return in_context([&](emm::Driver& driver) { return driver.mem_pool_create(props->max_size); },
                    [&](emm::PoolHandle pool) { *out = pool.value; });
}
Code cuMemPoolDestroy(Handle pool) {
  return in_context([&](emm::Driver& driver) { return driver.mem_pool_destroy({pool}); });
}
Code cuDeviceGetDefaultMemPool(Handle* out, Device device) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* driver = machine->device(device);
  if (driver == nullptr) return Machine::kInvalidDevice;
  const auto pool = driver->device_get_default_mem_pool();
  if (!pool) return pool.error().native;
  *out = pool->value;
  return Machine::kSuccess;
}
Code cuDeviceGetMemPool(Handle* out, Device device) {
  return cuDeviceGetDefaultMemPool(out, device);
}
Code cuMemPoolTrimTo(Handle pool, std::size_t keep) {
  return in_context([&](emm::Driver& driver) { return driver.mem_pool_trim_to({pool}, keep); });
}
Code cuMemPoolSetAttribute(Handle pool, int attribute, const void* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, is_policy(attribute) ? sizeof(int) : sizeof value);
  return in_context([&](emm::Driver& driver) {
    return driver.mem_pool_set_attribute({pool}, static_cast<emm::PoolAttribute>(attribute), value);
  });
}
// CUDA answers it without a current context, too (measured).
Code cuMemPoolGetAttribute(Handle pool, int attribute, void* to) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* context = Machine::current();
  auto* driver = context != nullptr ? context->device.driver.get() : machine->device(0);
  if (driver == nullptr) return Machine::kInvalidDevice;
  const auto value =
      driver->mem_pool_get_attribute({pool}, static_cast<emm::PoolAttribute>(attribute));
  if (!value) return value.error().native;
  std::memcpy(to, &*value, is_policy(attribute) ? sizeof(int) : sizeof *value);
  return Machine::kSuccess;
}
Code cuMemAllocAsync(Address* out, std::size_t size, Handle on) {
  if (graph::is_capturing(on)) return graph::add_alloc(out, size, on);
  return in_context([&](emm::Driver& driver) { return driver.mem_alloc_async(size, stream(on)); },
                    [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
Code cuMemAllocFromPoolAsync(Address* out, std::size_t size, Handle pool, Handle on) {
  if (graph::is_capturing(on)) return graph::add_alloc(out, size, on);
  return in_context(
      [&](emm::Driver& driver) {
        return driver.mem_alloc_from_pool_async(size, {pool}, stream(on));
      },
      [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
Code cuMemFreeAsync(Address ptr, Handle on) {
  if (graph::is_capturing(on)) return graph::add_free(ptr, on);
  return in_context([&](emm::Driver& driver) { return driver.mem_free_async({ptr}, stream(on)); });
}

}  // extern "C"
#pragma GCC visibility pop
