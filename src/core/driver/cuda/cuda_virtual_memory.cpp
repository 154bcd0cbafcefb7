#include <utility>

#include "driver/call.hpp"
#include "driver/cuda/cuda_driver.hpp"

namespace emm {
namespace {

CUmemAllocationProp pinned_on(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

}  // namespace

Result<std::uint64_t> CudaDriver::mem_get_allocation_granularity() {
  std::size_t bytes = 0;
  const auto prop = pinned_on(context_->device());
  auto made = make(Call::mem_get_allocation_granularity, [&](const CudaApi& api) {
    return api.mem_get_allocation_granularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  if (!made) return std::move(made).error();
  return std::uint64_t{bytes};
}

Result<DevicePtr> CudaDriver::mem_address_reserve(std::uint64_t size, std::uint64_t alignment,
                                                  DevicePtr at) {
  CUdeviceptr ptr = 0;
  auto made = make(Call::mem_address_reserve, [&](const CudaApi& api) {
    return api.mem_address_reserve(&ptr, size, alignment, at.value, 0);
  });
  if (!made) return std::move(made).error();
  return DevicePtr{ptr};
}

Status CudaDriver::mem_address_free(DevicePtr ptr, std::uint64_t size) {
  return make(Call::mem_address_free,
              [&](const CudaApi& api) { return api.mem_address_free(ptr.value, size); });
}

Result<PhysicalHandle> CudaDriver::mem_create(std::uint64_t size) {
  CUmemGenericAllocationHandle handle = 0;
  const auto prop = pinned_on(context_->device());
  auto made = make(Call::mem_create,
                   [&](const CudaApi& api) { return api.mem_create(&handle, size, &prop, 0); });
  if (!made) return std::move(made).error();
  context_->held_physical().create(handle, size);
  return PhysicalHandle{handle};
}

Status CudaDriver::mem_release(PhysicalHandle handle) {
  return make(Call::mem_release, [&](const CudaApi& api) {
    auto block = context_->held_physical().release(handle.value);
    const auto native = api.mem_release(handle.value);
    if (native != 0 && block) context_->held_physical().restore(handle.value, std::move(block));
    return native;
  });
}

Status CudaDriver::mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                           PhysicalHandle handle) {
  auto made = make(Call::mem_map, [&](const CudaApi& api) {
    return api.mem_map(ptr.value, size, offset, handle.value, 0);
  });
  if (made) context_->held_physical().map(ptr.value, size, handle.value);
  return made;
}

Status CudaDriver::mem_unmap(DevicePtr ptr, std::uint64_t size) {
  return make(Call::mem_unmap, [&](const CudaApi& api) {
    const auto gone = context_->held_physical().unmap(ptr.value, size);
    const auto native = api.mem_unmap(ptr.value, size);
    if (native != 0) context_->held_physical().restore(gone);
    return native;
  });
}

Status CudaDriver::mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) {
  const CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, context_->device()},
                             static_cast<CUmemAccess_flags>(access)};
  return make(Call::mem_set_access,
              [&](const CudaApi& api) { return api.mem_set_access(ptr.value, size, &desc, 1); });
}

}  // namespace emm
