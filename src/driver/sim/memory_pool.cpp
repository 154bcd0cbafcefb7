#include "driver/sim/memory_pool.hpp"

#include <algorithm>
#include <iterator>

#include "base/units.hpp"
#include "driver/sim/latency.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm::sim {
namespace {

constexpr std::uint64_t kGrowth = 32_MiB;

std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

Answer<DevicePtr> MemoryPool::allocate(std::uint64_t size, Point point) {
  if (size > VirtualMemory::kAddresses) return {.native = kOutOfMemory};
  size = rounded(size);
  Answer<DevicePtr> answer;
  auto range = find(size, point);
  if (!range) range = grow(size, answer.extra_ns);
  if (!range && policy(PoolAttribute::reuse_allow_internal_dependencies)) {
    range = free_.fit_of_others(point.stream, size, [](Point) { return true; });
    if (range) platform_.scheduler().order(point.stream, range->free_after);
  }
  if (!range) return {.native = kOutOfMemory};
  idle_.erase(std::prev(segments_.upper_bound(range->at))->first);
  free_.take(*range, size);
  used_ += size;
  used_high_ = std::max(used_high_, used_);
  answer.value = {range->at};
  return answer;
}

std::optional<FreeRanges::Range> MemoryPool::find(std::uint64_t size, Point point) {
  auto range = free_.fit(point.stream, size);
  if (range && range->size == size) return range;
  if (policy(PoolAttribute::reuse_allow_opportunistic)) {
    give_to_everyone();
    range = free_.fit(point.stream, size);
  }
  if (policy(PoolAttribute::reuse_follow_event_dependencies)) {
    const auto other = free_.fit_of_others(point.stream, size, [&](Point freed) {
      return platform_.scheduler().follows(point.stream, freed);
    });
    if (other && (!range || other->size < range->size)) range = other;
  }
  return range;
}

std::optional<FreeRanges::Range> MemoryPool::grow(std::uint64_t size, std::uint64_t& spent_ns) {
  auto range = reserve(round_up(size, kGrowth), spent_ns);
  return range ? range : reserve(round_up(size, kPageBytes), spent_ns);
}

std::optional<FreeRanges::Range> MemoryPool::reserve(std::uint64_t size, std::uint64_t& spent_ns) {
  if (max_size_ != 0 && size > max_size_ - std::min(max_size_, reserved_)) return std::nullopt;
  auto& memory = platform_.virtual_memory();
  const auto handle = memory.create(owner_, size);
  if (handle.native != kSuccess) return std::nullopt;
  const auto at = memory.reserve(owner_, size, 0, {});
  if (at.native != kSuccess) {
    memory.release(handle.value);
    return std::nullopt;
  }
  memory.map(at.value, size, 0, handle.value);
  memory.set_access(owner_.device, at.value, size, AccessFlags::read_write);
  for (const auto call : {Call::mem_create, Call::mem_map, Call::mem_set_access})
    spent_ns += latency_ns(call, size, kSuccess);
  segments_.emplace(at.value.value, Segment{.size = size, .handle = handle.value});
  reserved_ += size;
  reserved_high_ = std::max(reserved_high_, reserved_);
  add({at.value.value, size, {}});
  return FreeRanges::Range{at.value.value, size, {}};
}

void MemoryPool::free(std::uint64_t at, std::uint64_t size, Point point) {
  used_ -= size;
  add({at, size, point});
}

void MemoryPool::add(const FreeRanges::Range& range) {
  const auto& [begin, segment] = *std::prev(segments_.upper_bound(range.at));
  free_.add(range, begin, begin + segment.size);
  if (free_.is_free(begin, segment.size)) idle_.insert(begin);
}

// What was freed on a stream that has come so far since.
void MemoryPool::give_to_everyone() {
  std::uint64_t stream = 0;
  while (const auto range = free_.first_of_any_stream(stream)) {
    if (platform_.scheduler().is_over(range->free_after)) {
      free_.take(*range, range->size);
      add({range->at, range->size, {}});
    } else {
      stream = range->free_after.stream;
    }
  }
}

void MemoryPool::trim(std::uint64_t keep) {
  give_to_everyone();
  for (auto at = idle_.end(); at != idle_.begin();) {
    --at;
    const auto begin = *at;
    const auto size = segments_.at(begin).size;
    if (reserved_ < keep || reserved_ - keep < size) continue;
    at = idle_.erase(at);
    give_back(begin);
  }
}

void MemoryPool::give_back(std::uint64_t at) {
  const auto segment = segments_.find(at);
  const auto size = segment->second.size;
  auto& memory = platform_.virtual_memory();
  free_.take({at, size, {}}, size);
  memory.unmap({at}, size);
  memory.release(segment->second.handle);
  memory.free({at}, size);
  segments_.erase(segment);
  reserved_ -= size;
}

// Documented: high marks are set to 0 only, current ones not at all.
std::int32_t MemoryPool::set(PoolAttribute attribute, std::uint64_t value) {
  switch (attribute) {
    case PoolAttribute::reuse_follow_event_dependencies:
    case PoolAttribute::reuse_allow_opportunistic:
    case PoolAttribute::reuse_allow_internal_dependencies:
      policies_[static_cast<std::size_t>(attribute)] = value != 0;
      return kSuccess;
    case PoolAttribute::release_threshold:
      threshold_ = value;
      return kSuccess;
    case PoolAttribute::reserved_high:
      if (value != 0) return kInvalidValue;
      reserved_high_ = reserved_;
      return kSuccess;
    case PoolAttribute::used_high:
      if (value != 0) return kInvalidValue;
      used_high_ = used_;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

Answer<std::uint64_t> MemoryPool::get(PoolAttribute attribute) const {
  switch (attribute) {
    case PoolAttribute::reuse_follow_event_dependencies:
    case PoolAttribute::reuse_allow_opportunistic:
    case PoolAttribute::reuse_allow_internal_dependencies:
      return {kSuccess, policy(attribute) ? 1u : 0u};
    case PoolAttribute::release_threshold:
      return {kSuccess, threshold_};
    case PoolAttribute::reserved_current:
      return {kSuccess, reserved_};
    case PoolAttribute::reserved_high:
      return {kSuccess, reserved_high_};
    case PoolAttribute::used_current:
      return {kSuccess, used_};
    case PoolAttribute::used_high:
      return {kSuccess, used_high_};
  }
  return {.native = kInvalidValue};
}

}  // namespace emm::sim
