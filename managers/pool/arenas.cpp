#include "managers/pool/arenas.hpp"

namespace emm::pool {

// The table is never filled to its end, so that a search in it ends.
Arena& Arenas::make(std::uint64_t key, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  auto slot = slot_of(key);
  for (Arena* arena = nullptr;
       (arena = table_[slot].arena.load(std::memory_order_acquire)) != nullptr;
       slot = (slot + 1) % kSlots) {
    if (table_[slot].key == key) return *arena;
  }
  const auto other = others_.find(key);
  if (other != others_.end()) return *other->second;
  auto& arena = *arenas_.emplace_back(std::make_unique<Arena>(
      owner_, *driver_, backing_, group_, stream == kLegacyStream ? StreamHandle{} : stream,
      granule_shift_, count_split_));
  if (arenas_.size() > kSlots / 2) {
    others_.emplace(key, &arena);
    return arena;
  }
  table_[slot].key = key;
  table_[slot].arena.store(&arena, std::memory_order_release);
  return arena;
}

Arena* Arenas::at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return index < arenas_.size() ? arenas_[index].get() : nullptr;
}

}  // namespace emm::pool
