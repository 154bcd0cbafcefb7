#include "libemm/private_pools.hpp"

namespace emm::libemm {

void PrivatePools::begin(const Id& id, Filter takes) {
  auto& pool = pools_[id];
  if (pool.number == 0) pool.number = ++last_number_;
  if (!pool.takes) ++open_;
  pool.takes = std::move(takes);
  ++pool.uses;
}

void PrivatePools::end(const Id& id) {
  const auto found = pools_.find(id);
  if (found == pools_.end() || !found->second.takes) return;
  found->second.takes = nullptr;
  --open_;
}

void PrivatePools::release(const Id& id) {
  const auto found = pools_.find(id);
  if (found != pools_.end() && found->second.uses > 0) --found->second.uses;
}

std::uint64_t PrivatePools::of(StreamHandle stream) const {
  for (const auto& [id, pool] : pools_) {
    if (pool.takes && pool.takes(stream)) return pool.number;
  }
  return 0;
}

PrivatePools::Pool* PrivatePools::numbered(std::uint64_t number) {
  for (auto& [id, pool] : pools_) {
    if (pool.number == number) return &pool;
  }
  return nullptr;
}

PrivatePools::KeptMemory PrivatePools::take(std::uint64_t number, std::uint64_t size,
                                            StreamHandle stream) {
  auto* pool = numbered(number);
  if (pool == nullptr) return {};
  auto& idle = pool->idle;
  for (auto at = idle.lower_bound(size); at != idle.end() && at->first / 2 <= size; ++at) {
    if (at->second.stream != stream) continue;
    auto memory = std::move(at->second);
    idle.erase(at);
    return memory;
  }
  return {};
}

bool PrivatePools::keep(std::uint64_t number, KeptMemory& memory, bool again) {
  auto* pool = numbered(number);
  if (pool == nullptr) return false;
  if (again) {
    pool->idle.emplace(memory.size, std::move(memory));
  } else {
    pool->retired.push_back(std::move(memory));
  }
  return true;
}

std::vector<PrivatePools::KeptMemory> PrivatePools::drop_unused() {
  std::vector<KeptMemory> dropped;
  for (auto at = pools_.begin(); at != pools_.end();) {
    auto& pool = at->second;
    if (pool.uses > 0 || pool.takes) {
      ++at;
      continue;
    }
    for (auto& [size, memory] : pool.idle) dropped.push_back(std::move(memory));
    for (auto& memory : pool.retired) dropped.push_back(std::move(memory));
    at = pools_.erase(at);
  }
  return dropped;
}

}  // namespace emm::libemm
