#include "allocators/pytorch/policy.hpp"

#include <algorithm>
#include <iterator>

namespace emm::allocators::pytorch {
namespace {

/// Returns the size to which a block could grow. Expandable blocks are compared by it.
std::uint64_t expandable_size(const Block& block) noexcept {
  const auto* const after = block.after;
  return block.size + (after != nullptr && !after->mapped ? after->size : 0);
}

Block key_of(const Wanted& wanted, std::uint64_t size) {
  return {.size = size, .stream = wanted.stream};
}

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Block* find_free(const Settings& settings, const Wanted& wanted) {
  auto& free = wanted.pool->free;
  auto key = key_of(wanted, wanted.size);
  auto at = free.lower_bound(&key);
  if (at == free.end() || (*at)->stream != wanted.stream) return nullptr;
  if ((*at)->segment->expandable) {
    for (auto next = std::next(at);
         (*at)->segment->expandable && next != free.end() && (*next)->stream == wanted.stream &&
         expandable_size(**next) < expandable_size(**at);
         ++next)
      at = next;
  }
  const auto rounding = settings.max_non_split_rounding.value_or(settings.large_segment_size);
  if (wanted.size < settings.max_split_size && (*at)->size >= settings.max_split_size)
    return nullptr;
  if (wanted.size >= settings.max_split_size && (*at)->size >= wanted.size + rounding)
    return nullptr;
  return *at;
}

bool splits(const Settings& settings, const Block& block, std::uint64_t size) noexcept {
  const auto rest = block.size - size;
  if (block.pool->small || settings.expandable_segments) return rest >= kMinBlock;
  return size < settings.max_split_size && rest > kSmallSize;
}

std::uint64_t granule(const Settings& settings, const Pool& pool) noexcept {
  return pool.small ? kSmallSegment : settings.large_segment_size;
}

std::optional<Room> find_room(const Settings& settings, const Wanted& wanted) {
  const auto unit = granule(settings, *wanted.pool);
  const auto is_idle = [](const Block* block) {
    return block != nullptr && block->state == Block::State::free;
  };
  Block key{.stream = wanted.stream};
  for (auto at = wanted.pool->unmapped.lower_bound(&key);
       at != wanted.pool->unmapped.end() && (*at)->stream == wanted.stream; ++at) {
    auto* const first = is_idle((*at)->before) ? (*at)->before : *at;
    std::uint64_t room = 0;
    for (auto* block = first; room < wanted.size && is_idle(block); block = block->after)
      room += block->size;
    if (room < wanted.size) continue;
    Room found{.first = first, .mappings = {}};
    std::uint64_t ready = 0;
    for (auto* block = first; ready < wanted.size; block = block->after) {
      if (block->mapped) {
        ready += block->size;
        continue;
      }
      // Granules count from the beginning of the range.
      const auto base = block->segment->address;
      const auto end = block->address + std::min(block->size, wanted.size - ready);
      const auto upto = std::min(base + round_up(end - base, unit), block->address + block->size);
      found.mappings.push_back(
          {.block = block, .address = block->address, .size = upto - block->address});
      ready += upto - block->address;
    }
    return found;
  }
  return std::nullopt;
}

std::vector<Block*> garbage(const Settings& settings, const Heap& heap) {
  std::vector<Block*> found;
  if (settings.garbage_collection_threshold <= 0 || settings.limit() == kNoLimit) return found;
  const auto threshold = static_cast<std::uint64_t>(settings.garbage_collection_threshold *
                                                    static_cast<double>(settings.limit()));
  if (heap.reserved() <= threshold) return found;
  const auto target = heap.reserved() - threshold;
  const auto pool = heap.pools().find({PoolId{}, false});
  if (pool == heap.pools().end()) return found;
  const auto lookups = pool->second->lookups;
  std::vector<Block*> left;
  double age = 0;
  for (auto* block : pool->second->free) {
    if (block->is_split() || block->segment->expandable) continue;
    age += static_cast<double>(lookups - block->lookups);
    left.push_back(block);
  }
  std::uint64_t bytes = 0;
  for (auto any = true; bytes < target && any && !left.empty();) {
    const auto mean = age / static_cast<double>(left.size());
    any = false;
    std::vector<Block*> kept;
    for (auto* block : left) {
      const auto own = static_cast<double>(lookups - block->lookups);
      if (own < mean) {
        kept.push_back(block);
        continue;
      }
      any = true;
      bytes += block->size;
      age -= own;
      found.push_back(block);
    }
    left = std::move(kept);
  }
  return found;
}

Oversize oversize(const Settings& settings, const Wanted& wanted) {
  Oversize found;
  if (settings.max_split_size == kNoLimit) return found;
  const auto& free = wanted.pool->free;
  auto key = key_of(wanted, std::max(wanted.size, settings.max_split_size));
  const auto enough = free.lower_bound(&key);
  if (enough != free.end() && (*enough)->stream == wanted.stream &&
      !(*enough)->segment->expandable) {
    found.blocks.push_back(*enough);
    found.suffices = true;
    return found;
  }
  std::uint64_t bytes = 0;
  for (auto at = enough; at != free.begin() && bytes < key.size;) {
    --at;
    if ((*at)->size < settings.max_split_size || (*at)->stream != wanted.stream) break;
    if ((*at)->segment->expandable) continue;
    found.blocks.push_back(*at);
    bytes += (*at)->size;
  }
  found.suffices = bytes >= key.size;
  return found;
}

void add_idle(const Settings& settings, const Pool& pool, std::vector<Idle>& found) {
  for (auto* block : pool.free) {
    if (!block->segment->expandable && !block->is_split())
      found.push_back({.block = block, .address = block->address, .size = block->size});
  }
  const auto unit = granule(settings, pool);
  for (auto* block : pool.free) {
    if (!block->segment->expandable) continue;
    const auto base = block->segment->address;
    const auto begin = base + round_up(block->address - base, unit);
    const auto end = base + round_down(block->address + block->size - base, unit);
    if (begin < end) found.push_back({.block = block, .address = begin, .size = end - begin});
  }
}

std::vector<Idle> idle(const Settings& settings, const Heap& heap) {
  std::vector<Idle> found;
  for (auto at = heap.pools().begin(); at != heap.pools().end();) {
    const auto id = at->first.first;
    const Pool *large = nullptr, *small = nullptr;
    for (; at != heap.pools().end() && at->first.first == id; ++at)
      (at->second->small ? small : large) = at->second.get();
    if (id.is_default()) {
      if (large != nullptr) add_idle(settings, *large, found);
      if (small != nullptr) add_idle(settings, *small, found);
      continue;
    }
    if (small != nullptr && small->unused) add_idle(settings, *small, found);
    if (large != nullptr && large->unused) add_idle(settings, *large, found);
  }
  return found;
}

}  // namespace emm::allocators::pytorch
