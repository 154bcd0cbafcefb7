#include "allocators/chunk_heap.hpp"

#include <iterator>

namespace emm::allocators {

Chunk* ChunkHeap::found(std::uint64_t address) const { return &chunks_.find(address)->second; }

Chunk* ChunkHeap::at(std::uint64_t address) noexcept {
  const auto at = chunks_.find(address);
  return at == chunks_.end() ? nullptr : &at->second;
}

Chunk* ChunkHeap::before(const Chunk* chunk) noexcept {
  const auto at = chunks_.find(chunk->address);
  if (at == chunks_.begin()) return nullptr;
  auto& before = std::prev(at)->second;
  return before.address + before.size == chunk->address ? &before : nullptr;
}

void ChunkHeap::forget(std::uint64_t address, std::uint64_t size) {
  auto at = chunks_.upper_bound(address);
  if (at != chunks_.begin() && address - std::prev(at)->second.address < std::prev(at)->second.size)
    --at;
  if (at == chunks_.end() || at->first >= address + size) return;
  if (at != chunks_.begin() && !at->second.begins) std::prev(at)->second.ends = true;
  while (at != chunks_.end() && at->first < address + size) {
    const bool ends = at->second.ends;
    if (at->second.is_free) erase(at->second);
    at = chunks_.erase(at);
    if (!ends && at != chunks_.end()) at->second.begins = true;
  }
}

void ChunkHeap::erase(const Chunk& chunk) {
  const auto list = free_.find(chunk.list);
  list->second.erase({chunk.size, chunk.address});
  if (list->second.empty()) free_.erase(list);
}

Chunk* ChunkHeap::add_region(std::uint64_t address, std::uint64_t size, std::uint64_t list) {
  auto& chunk = chunks_[address] = {.address = address,
                                    .size = size,
                                    .list = list,
                                    .is_free = true,
                                    .begins = true,
                                    .ends = true};
  insert(chunk);
  return &chunk;
}

void ChunkHeap::remove_region(Chunk* chunk) {
  erase(*chunk);
  chunks_.erase(chunk->address);
}

Chunk* ChunkHeap::best_fit(std::uint64_t list, std::uint64_t size) const {
  const auto of = free_.find(list);
  if (of == free_.end()) return nullptr;
  const auto best = of->second.lower_bound({size, 0});
  return best == of->second.end() ? nullptr : found(best->second);
}

std::vector<Chunk*> ChunkHeap::all_of(std::uint64_t list, std::uint64_t size) const {
  std::vector<Chunk*> all;
  const auto of = free_.find(list);
  if (of == free_.end()) return all;
  for (auto each = of->second.lower_bound({size, 0});
       each != of->second.end() && each->first == size; ++each)
    all.push_back(found(each->second));
  return all;
}

Chunk* ChunkHeap::cut_front(Chunk* chunk, std::uint64_t bytes) {
  erase(*chunk);
  auto& rest = chunks_[chunk->address + bytes] = {.address = chunk->address + bytes,
                                                  .size = chunk->size - bytes,
                                                  .list = chunk->list,
                                                  .is_free = true,
                                                  .begins = false,
                                                  .ends = chunk->ends};
  chunk->size = bytes;
  chunk->ends = false;
  insert(*chunk);
  insert(rest);
  return &rest;
}

Chunk* ChunkHeap::take(Chunk* chunk, std::uint64_t size, bool splits) {
  if (splits && chunk->size > size) cut_front(chunk, size);
  erase(*chunk);
  chunk->is_free = false;
  return chunk;
}

Chunk* ChunkHeap::release(Chunk* chunk, std::uint64_t list) {
  chunk->list = list;
  chunk->is_free = true;
  const auto at = chunks_.find(chunk->address);
  if (const auto next = std::next(at);
      !chunk->ends && next->second.is_free && next->second.list == list) {
    erase(next->second);
    chunk->size += next->second.size;
    chunk->ends = next->second.ends;
    chunks_.erase(next);
  }
  if (!chunk->begins) {
    auto& before = std::prev(at)->second;
    if (before.is_free && before.list == list) {
      erase(before);
      before.size += chunk->size;
      before.ends = chunk->ends;
      chunks_.erase(at);
      chunk = &before;
    }
  }
  insert(*chunk);
  return chunk;
}

void ChunkHeap::move_all(std::uint64_t from, std::uint64_t to) {
  const auto of = free_.find(from);
  if (of == free_.end() || from == to) return;
  const auto all = of->second;
  free_.erase(of);
  for (const auto& [size, address] : all) found(address)->is_free = false;
  for (const auto& [size, address] : all) release(found(address), to);
}

bool ChunkHeap::is_empty(std::uint64_t list) const { return free_.find(list) == free_.end(); }

std::vector<Chunk*> ChunkHeap::idle_regions() const {
  std::vector<Chunk*> idle;
  for (const auto& [list, chunks] : free_) {
    for (const auto& [size, address] : chunks) {
      if (auto* const chunk = found(address); chunk->is_region()) idle.push_back(chunk);
    }
  }
  return idle;
}

}  // namespace emm::allocators
