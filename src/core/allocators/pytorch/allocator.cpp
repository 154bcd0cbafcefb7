#include "allocators/pytorch/allocator.hpp"

#include <algorithm>

namespace emm::allocators::pytorch {

Block* Allocator::allocate(std::uint64_t size, std::uint64_t stream, PoolId id) {
  const auto& settings = heap_.settings();
  constexpr auto kMost = std::uint64_t{1} << 47;  // No device has more addresses.
  if (size > kMost) {
    ++counts_.ooms;
    return nullptr;
  }
  Wanted wanted{.size = round_size(settings, size), .stream = stream};
  wanted.segment = segment_size(settings, wanted.size);
  wanted.pool = &heap_.pool(id, is_small(wanted.size));
  const auto collects = settings.garbage_collection_threshold > 0 && settings.limit() != kNoLimit;
  if (collects) ++wanted.pool->lookups;
  auto* block = find_free(settings, wanted);
  if (block == nullptr) {
    if (collects) release(garbage(settings, heap_));
    block = grow(wanted);
  }
  if (block == nullptr) {
    const auto big = oversize(settings, wanted);
    release(big.blocks);
    if (big.suffices) block = grow(wanted);
  }
  if (block == nullptr && id.is_default()) {
    release_all();
    ++counts_.retries;
    block = grow(wanted);
  }
  if (block == nullptr) {
    ++counts_.ooms;
    return nullptr;
  }
  block = heap_.take(block, wanted.size, splits(settings, *block, wanted.size));
  counts_.active += block->size;
  counts_.peak_active = std::max(counts_.peak_active, counts_.active);
  return block;
}

void Allocator::begin_with(const State& state, const Placed& placed) {
  const auto& settings = heap_.settings();
  const auto length = settings.total != 0 ? settings.total / 8 * 9 : std::uint64_t{1} << 37;
  const auto& segments = state.segments;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& each = segments[i];
    auto& pool = heap_.pool(each.pool, each.small);
    if (!each.mapped) {
      heap_.add_segment(each.address, each.size, each.stream, pool);
      continue;
    }
    auto* block = heap_.block_at(each.address);
    if (block == nullptr) {
      // The range goes on to the next memory that cannot be of it. Its true beginning is unknown,
      // but granules count from it, as from what is mapped.
      auto end = each.address + std::max(length, each.size);
      for (auto next = i + 1; next < segments.size() && segments[next].address < end; ++next) {
        const auto& other = segments[next];
        const bool alike = other.mapped && other.stream == each.stream && other.pool == each.pool &&
                           other.small == each.small;
        if (!alike) end = other.address;
      }
      block = heap_.add_range(each.address, end - each.address, each.stream, pool);
    }
    if (block->address < each.address)
      block = heap_.cut_front(block, each.address - block->address);
    heap_.map(block, std::min(each.size, block->size));
  }
  // From the last to the first, so that the block in which one lies is the first of its segment.
  for (auto at = state.blocks.rbegin(); at != state.blocks.rend(); ++at) {
    auto* block = heap_.block_at(at->address);
    if (block == nullptr || !block->is_free() || at->size == 0) continue;
    if (block->address < at->address) block = heap_.cut_front(block, at->address - block->address);
    const auto size = std::min(block->size, at->size);
    block = heap_.take(block, size, block->size > size);
    counts_.active += block->size;
    if (at->pending) {
      heap_.set_pending(block);
      pending_.push_back(block);
    }
    if (placed) placed(*at, *block);
  }
  counts_.peak_active = counts_.active;
  note_reserved();
}

/// Gets new memory from the device and returns it as a free block. Null where the limit or the
/// device refuses.
Block* Allocator::grow(const Wanted& wanted) {
  const auto limit = heap_.settings().limit();
  if (limit != kNoLimit && heap_.reserved() + wanted.segment > limit) return nullptr;
  if (heap_.settings().expandable_segments) return grow_range(wanted);
  const auto address = source_.allocate(wanted.segment);
  if (!address) return nullptr;
  ++counts_.device_allocs;
  auto* const block = heap_.add_segment(*address, wanted.segment, wanted.stream, *wanted.pool);
  note_reserved();
  return block;
}

Block* Allocator::grow_range(const Wanted& wanted) {
  const auto& settings = heap_.settings();
  const auto unit = granule(settings, *wanted.pool);
  auto found = find_room(settings, wanted);
  if (!found) {
    const auto total = settings.total != 0 ? settings.total : std::uint64_t{1} << 40;
    const auto bytes = total / 8 * 9 / unit * unit + unit;
    const auto address = source_.reserve(bytes);
    if (!address) return nullptr;
    heap_.add_range(*address, bytes, wanted.stream, *wanted.pool);
    found = find_room(settings, wanted);
    if (!found) return nullptr;
  }
  auto* block = found->first;
  for (const auto& piece : found->mappings) {
    // The pieces that were mapped before one fails stay mapped.
    if (!source_.map(piece.address, piece.size, unit)) return nullptr;
    ++counts_.device_allocs;
    block = heap_.map(piece.block, piece.size);
    note_reserved();
  }
  return block;
}

void Allocator::note_reserved() {
  counts_.peak_reserved = std::max(counts_.peak_reserved, heap_.reserved());
}

void Allocator::release(const std::vector<Block*>& blocks) {
  for (auto* block : blocks) {
    source_.free(block->address, block->size);
    ++counts_.device_frees;
    heap_.remove_segment(block);
  }
}

void Allocator::release(const std::vector<Idle>& idle) {
  for (const auto& piece : idle) {
    ++counts_.device_frees;
    if (!piece.block->segment->expandable) {
      source_.free(piece.address, piece.size);
      heap_.remove_segment(piece.block);
      continue;
    }
    source_.unmap(piece.address, piece.size, granule(heap_.settings(), *piece.block->pool));
    auto* const block = heap_.unmap(piece.block, piece.address, piece.size);
    if (block->is_split()) continue;
    source_.release(block->address, block->size);
    heap_.remove_segment(block);
  }
}

void Allocator::release_all() {
  source_.synchronize();
  for (auto* block : std::exchange(pending_, {})) {
    counts_.active -= block->size;
    if (completed_) completed_(*block);
    heap_.release(block);
  }
  release(idle(heap_.settings(), heap_));
}

void Allocator::free(Block* block) {
  counts_.active -= block->size;
  heap_.release(block);
}

void Allocator::free_later(Block* block) {
  heap_.set_pending(block);
  pending_.push_back(block);
}

void Allocator::complete(Block* block) {
  pending_.erase(std::find(pending_.begin(), pending_.end(), block));
  free(block);
}

void Allocator::empty_cache() { release_all(); }

void Allocator::set_unused(PoolId id) {
  for (const auto small : {false, true}) heap_.pool(id, small).unused = true;
}

void Allocator::drop(PoolId id) {
  set_unused(id);
  std::vector<Idle> found;
  for (const auto small : {true, false}) add_idle(heap_.settings(), heap_.pool(id, small), found);
  release(found);
}

}  // namespace emm::allocators::pytorch
