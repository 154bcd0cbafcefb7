#include "allocators/pytorch/heap.hpp"

namespace emm::allocators::pytorch {

Pool& Heap::pool(PoolId id, bool small) {
  auto& pool = pools_[{id, small}];
  if (!pool) {
    pool = std::make_unique<Pool>();
    pool->id = id;
    pool->small = small;
    pool->expandable = settings_.expandable_segments;
  }
  return *pool;
}

const FreeBlocks& Heap::free_of(PoolId id, bool small) const noexcept {
  static const FreeBlocks kNone;
  const auto found = pools_.find({id, small});
  return found == pools_.end() ? kNone : found->second->free;
}

// A block keeps its address for life, since sets and neighbours point to it, so dropped ones are
// used again in place.
Block* Heap::make(const Block& block) {
  if (!spare_.empty()) {
    auto* const made = spare_.back();
    spare_.pop_back();
    *made = block;
    return made;
  }
  return &blocks_.emplace_back(block);
}

void Heap::drop(Block* block) noexcept { spare_.push_back(block); }

void Heap::link(Block* before, Block* block, Block* after) noexcept {
  block->before = before;
  block->after = after;
  if (before != nullptr) before->after = block;
  if (after != nullptr) after->before = block;
  if (before == nullptr) block->segment->first = block;
}

// A block that nobody holds is in one set of its pool: that of free blocks, or that of unmapped
// ones. Nodes of the set are used again, which spares most requests the heap.
void Heap::insert(Block* block) {
  if (block->mapped) {
    block->lookups = block->pool->lookups;
    if (spare_nodes_.empty()) {
      block->place = block->pool->free.insert(block).first;
      return;
    }
    auto node = std::move(spare_nodes_.back());
    spare_nodes_.pop_back();
    node.value() = block;
    block->place = block->pool->free.insert(std::move(node)).position;
  } else {
    block->pool->unmapped.insert(block);
  }
}

void Heap::erase(Block* block) {
  if (block->mapped) {
    spare_nodes_.push_back(block->pool->free.extract(block->place));
  } else {
    block->pool->unmapped.erase(block);
  }
}

Block* Heap::add(const Segment& made, std::uint64_t stream) {
  auto& segment = segments_[made.address];
  segment = std::make_unique<Segment>(made);
  auto* const block = make({.address = made.address,
                            .size = made.size,
                            .stream = stream,
                            .pool = made.pool,
                            .segment = segment.get(),
                            .mapped = !made.expandable});
  segment->first = block;
  insert(block);
  if (block->mapped) reserved_ += block->size;
  return block;
}

Block* Heap::add_segment(std::uint64_t address, std::uint64_t size, std::uint64_t stream,
                         Pool& pool) {
  return add({.address = address, .size = size, .pool = &pool}, stream);
}

Block* Heap::add_range(std::uint64_t address, std::uint64_t size, std::uint64_t stream,
                       Pool& pool) {
  return add({.address = address, .size = size, .pool = &pool, .expandable = true}, stream);
}

void Heap::remove_segment(Block* block) {
  erase(block);
  if (block->mapped) reserved_ -= block->size;
  const auto address = block->segment->address;
  drop(block);
  segments_.erase(address);
}

/// Merges a free neighbour of the same mapped state into `block`. REQUIRES: `block` is in no set.
bool Heap::absorb(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->state != Block::State::free ||
      neighbour->mapped != block->mapped)
    return false;
  erase(neighbour);
  auto* const before = neighbour == block->before ? neighbour->before : block->before;
  auto* const after = neighbour == block->after ? neighbour->after : block->after;
  if (neighbour == block->before) block->address = neighbour->address;
  block->size += neighbour->size;
  link(before, block, after);
  drop(neighbour);
  return true;
}

Block* Heap::map(Block* block, std::uint64_t size) {
  erase(block);
  block->mapped = true;
  if (size < block->size) {
    auto* const rest = make(*block);
    rest->mapped = false;
    rest->address += size;
    rest->size -= size;
    auto* const after = block->after;
    block->size = size;
    link(block->before, block, rest);
    link(block, rest, after);
    insert(rest);
  }
  absorb(block, block->before);
  absorb(block, block->after);
  insert(block);
  reserved_ += size;
  return block;
}

Block* Heap::unmap(Block* block, std::uint64_t address, std::uint64_t size) {
  erase(block);
  const auto front = address - block->address, back = block->size - front - size;
  if (front != 0) {
    auto* const piece = make(*block);
    piece->size = front;
    auto* const before = block->before;
    block->address += front;
    block->size -= front;
    link(piece, block, block->after);
    link(before, piece, block);
    insert(piece);
  }
  if (back != 0) {
    auto* const piece = make(*block);
    piece->address = address + size;
    piece->size = back;
    auto* const after = block->after;
    block->size -= back;
    link(block->before, block, piece);
    link(block, piece, after);
    insert(piece);
  }
  block->mapped = false;
  absorb(block, block->before);
  absorb(block, block->after);
  insert(block);
  reserved_ -= size;
  return block;
}

Block* Heap::take(Block* block, std::uint64_t size, bool split) {
  erase(block);
  if (split) {
    auto* const rest = make(*block);
    rest->address += size;
    rest->size -= size;
    auto* const after = block->after;
    block->size = size;
    link(block->before, block, rest);
    link(block, rest, after);
    insert(rest);
  }
  block->state = Block::State::active;
  return block;
}

Block* Heap::cut_front(Block* block, std::uint64_t bytes) {
  erase(block);
  auto* const front = make(*block);
  front->size = bytes;
  auto* const before = block->before;
  block->address += bytes;
  block->size -= bytes;
  link(front, block, block->after);
  link(before, front, block);
  insert(front);
  insert(block);
  return block;
}

Block* Heap::release(Block* block) {
  block->state = Block::State::free;
  absorb(block, block->before);
  absorb(block, block->after);
  insert(block);
  return block;
}

Segment* Heap::segment_of(std::uint64_t address) const noexcept {
  auto found = segments_.upper_bound(address);
  if (found == segments_.begin()) return nullptr;
  auto* const segment = std::prev(found)->second.get();
  return address - segment->address < segment->size ? segment : nullptr;
}

Block* Heap::block_at(std::uint64_t address) const noexcept {
  const auto* const segment = segment_of(address);
  if (segment == nullptr) return nullptr;
  for (auto* block = segment->first; block != nullptr; block = block->after) {
    if (address - block->address < block->size) return block;
  }
  return nullptr;
}

}  // namespace emm::allocators::pytorch
