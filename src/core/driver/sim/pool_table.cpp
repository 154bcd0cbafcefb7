#include "driver/sim/pool_table.hpp"

#include <iterator>
#include <tuple>

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

PoolHandle PoolTable::create(Asker asker, std::uint64_t max_size) {
  const std::lock_guard lock(mutex_);
  any_.store(true, std::memory_order_relaxed);
  const auto made = pools_.emplace(std::piecewise_construct, std::tuple(++last_),
                                   std::forward_as_tuple(platform_, asker, max_size));
  live_.emplace(last_, &made.first->second);
  return {last_};
}

PoolHandle PoolTable::default_pool(Asker asker) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = defaults_.find(asker.device); found != defaults_.end())
      return {found->second};
  }
  const auto made = create(asker, 0);
  const std::lock_guard lock(mutex_);
  const auto [kept, is_first] = defaults_.try_emplace(asker.device, made.value);
  if (!is_first) {
    live_.erase(made.value);
    pools_.erase(made.value);
  }
  return {kept->second};
}

std::int32_t PoolTable::destroy(PoolHandle handle) {
  const std::lock_guard lock(mutex_);
  auto* pool = pool_of(handle);
  if (pool == nullptr) return kInvalidValue;
  if (const auto found = defaults_.find(pool->device());
      found != defaults_.end() && found->second == handle.value)
    return kInvalidValue;
  live_.erase(handle.value);
  pool->destroy();
  if (pool->is_empty()) pools_.erase(handle.value);
  return kSuccess;
}

std::int32_t PoolTable::trim(PoolHandle handle, std::uint64_t keep) {
  const std::lock_guard lock(mutex_);
  auto* pool = pool_of(handle);
  if (pool == nullptr) return kInvalidValue;
  pool->trim(keep);
  return kSuccess;
}

std::int32_t PoolTable::set(PoolHandle handle, PoolAttribute attribute, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  auto* pool = pool_of(handle);
  return pool != nullptr ? pool->set(attribute, value) : kInvalidValue;
}

Answer<std::uint64_t> PoolTable::get(PoolHandle handle, PoolAttribute attribute) {
  const std::lock_guard lock(mutex_);
  const auto* pool = pool_of(handle);
  if (pool == nullptr) return {.native = kInvalidValue};
  return pool->get(attribute);
}

Answer<DevicePtr> PoolTable::allocate(Asker asker, std::uint64_t size, PoolHandle handle,
                                      StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto point = platform_.scheduler().now_on(asker, stream);
  if (point.native != kSuccess) return {.native = point.native};
  auto* pool = pool_of(handle);
  if (pool == nullptr) return {.native = kInvalidValue};
  if (size == 0) return {};
  auto answer = pool->allocate(size, point.value);
  if (answer.native == kSuccess)
    blocks_.emplace(answer.value.value, PoolBlock{.size = size, .pool = handle.value});
  return answer;
}

std::int32_t PoolTable::free(Asker asker, DevicePtr ptr, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(ptr.value);
  if (block == blocks_.end()) return kInvalidValue;
  const auto before = platform_.scheduler().now_on(asker, stream);
  const auto point = platform_.scheduler().mark(asker, stream);
  if (point.native == kSuccess) end(block, before.value, point.value);
  return point.native;
}

Answer<Nothing> PoolTable::free(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(ptr.value);
  if (block == blocks_.end()) return {.native = kInvalidValue};
  const auto size = block->second.size;
  auto& pool = pools_.at(block->second.pool);
  end(block, {}, {});
  pool.synchronized();
  return {.native = kSuccess, .value = {}, .size = size};
}

PoolTable::Found PoolTable::find(DevicePtr ptr) const {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(ptr.value);
  if (block == blocks_.begin()) return {};
  --block;
  if (ptr.value - block->first >= block->second.size) return {};
  return {.native = kSuccess, .range = {.base = {block->first}, .size = block->second.size}};
}

bool PoolTable::owns(DevicePtr ptr) const {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, pool] : pools_) {
    if (pool.owns(ptr.value)) return true;
  }
  return false;
}

void PoolTable::drop(int device) {
  const std::lock_guard lock(mutex_);
  const auto ends = [&](std::uint64_t pool) { return pools_.at(pool).device() == device; };
  std::erase_if(blocks_, [&](const auto& entry) { return ends(entry.second.pool); });
  std::erase_if(live_, [&](const auto& entry) { return ends(entry.first); });
  std::erase_if(pools_, [&](const auto& entry) { return entry.second.device() == device; });
  defaults_.erase(device);
}

MemoryPool* PoolTable::pool_of(PoolHandle handle) {
  const auto found = live_.find(handle.value);
  return found == live_.end() ? nullptr : found->second;
}

void PoolTable::end(std::map<std::uint64_t, PoolBlock>::iterator block, Point before, Point point) {
  pools_.at(block->second.pool).free(block->first, block->second.size, before, point);
  blocks_.erase(block);
}

void PoolTable::end_recent(Asker asker) {
  const std::lock_guard lock(mutex_);
  const auto legacy = platform_.scheduler().now_on(asker, {});
  if (legacy.native != kSuccess) return;
  for (auto& [handle, pool] : pools_) {
    if (pool.device() == asker.device) pool.end_recent(legacy.value.stream);
  }
}

void PoolTable::release_idle(int device) {
  const std::lock_guard lock(mutex_);
  for (auto at = pools_.begin(); at != pools_.end();) {
    auto& [handle, pool] = *at;
    if (pool.device() == device) pool.synchronized();
    at = pool.is_empty() && live_.count(handle) == 0 ? pools_.erase(at) : std::next(at);
  }
}

}  // namespace emm::sim
