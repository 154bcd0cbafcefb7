#include <algorithm>

#include "driver/call.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/cuda/handles.hpp"

// Stream-ordered memory.
namespace emm {

using cuda::native;
using cuda::number;

namespace {

/// A policy is an int; every other attribute has 64 bits (CUmemPool_attribute).
bool is_policy(PoolAttribute attribute) { return attribute < PoolAttribute::release_threshold; }

}  // namespace

void CudaContext::count_pool(CUmemoryPool pool) {
  const std::lock_guard lock(pools_mutex_);
  if (std::find(pools_.begin(), pools_.end(), pool) == pools_.end()) pools_.push_back(pool);
}

void CudaContext::count_default_pool() {
  if (default_pool_counted_.load(std::memory_order_relaxed)) return;
  CUmemoryPool pool = nullptr;
  if (api_.device_get_default_mem_pool(&pool, device_) != 0) return;
  count_pool(pool);
  default_pool_counted_.store(true, std::memory_order_relaxed);
}

bool CudaContext::forget_pool(CUmemoryPool pool) noexcept {
  const std::lock_guard lock(pools_mutex_);
  return std::erase(pools_, pool) != 0;
}

std::uint64_t CudaContext::held_bytes() noexcept {
  auto bytes = held_.bytes() + held_physical_.bytes();
  const std::lock_guard lock(pools_mutex_);
  for (const auto pool : pools_) {
    std::uint64_t reserved = 0;
    api_.mem_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    bytes += reserved;
  }
  return bytes;
}

Result<PoolHandle> CudaDriver::mem_pool_create(std::uint64_t max_size) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_->device()};
  props.maxSize = max_size;
  CUmemoryPool pool = nullptr;
  auto made = make(Call::mem_pool_create,
                   [&](const CudaApi& api) { return api.mem_pool_create(&pool, &props); });
  if (!made) return std::move(made).error();
  context_->count_pool(pool);
  return PoolHandle{number(pool)};
}

// The count forgets the pool before the call, since the driver may reuse the handle at once. Memory
// that is still allocated from the pool is no longer counted, since the driver does not report it.
Status CudaDriver::mem_pool_destroy(PoolHandle pool) {
  return make(Call::mem_pool_destroy, [&](const CudaApi& api) {
    const bool was_counted = context_->forget_pool(native(pool));
    const auto answer = api.mem_pool_destroy(native(pool));
    if (answer != 0 && was_counted) context_->count_pool(native(pool));
    return answer;
  });
}

Result<PoolHandle> CudaDriver::device_get_default_mem_pool() {
  CUmemoryPool pool = nullptr;
  auto made = make(Call::device_get_default_mem_pool, [&](const CudaApi& api) {
    return api.device_get_default_mem_pool(&pool, context_->device());
  });
  if (!made) return std::move(made).error();
  context_->count_pool(pool);
  return PoolHandle{number(pool)};
}

Status CudaDriver::mem_pool_trim_to(PoolHandle pool, std::uint64_t keep) {
  return make(Call::mem_pool_trim_to,
              [&](const CudaApi& api) { return api.mem_pool_trim_to(native(pool), keep); });
}

Status CudaDriver::mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                          std::uint64_t value) {
  int policy = value != 0 ? 1 : 0;
  return make(Call::mem_pool_set_attribute, [&](const CudaApi& api) {
    return api.mem_pool_set_attribute(
        native(pool), static_cast<CUmemPool_attribute>(attribute),
        is_policy(attribute) ? static_cast<void*>(&policy) : static_cast<void*>(&value));
  });
}

Result<std::uint64_t> CudaDriver::mem_pool_get_attribute(PoolHandle pool, PoolAttribute attribute) {
  std::uint64_t value = 0;  // a policy fills the low half, on a little-endian machine
  auto made = make(Call::mem_pool_get_attribute, [&](const CudaApi& api) {
    return api.mem_pool_get_attribute(native(pool), static_cast<CUmemPool_attribute>(attribute),
                                      &value);
  });
  if (!made) return std::move(made).error();
  return value;
}

Result<DevicePtr> CudaDriver::mem_alloc_async(std::uint64_t size, StreamHandle stream) {
  CUdeviceptr ptr = 0;
  auto made = make(Call::mem_alloc_async, [&](const CudaApi& api) {
    return api.mem_alloc_async(&ptr, size, native(stream));
  });
  if (!made) return std::move(made).error();
  context_->count_default_pool();
  return DevicePtr{ptr};
}

Result<DevicePtr> CudaDriver::mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                                        StreamHandle stream) {
  CUdeviceptr ptr = 0;
  auto made = make(Call::mem_alloc_from_pool_async, [&](const CudaApi& api) {
    return api.mem_alloc_from_pool_async(&ptr, size, native(pool), native(stream));
  });
  if (!made) return std::move(made).error();
  return DevicePtr{ptr};
}

// It also frees memory from mem_alloc (measured on an H200).
Status CudaDriver::mem_free_async(DevicePtr ptr, StreamHandle stream) {
  return make(Call::mem_free_async, [&](const CudaApi& api) {
    const auto size = context_->held().remove(ptr.value);
    const auto answer = api.mem_free_async(ptr.value, native(stream));
    if (answer != 0 && size != 0) context_->held().add(ptr.value, size);
    return answer;
  });
}

}  // namespace emm
