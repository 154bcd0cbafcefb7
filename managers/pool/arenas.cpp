#include "managers/pool/arenas.hpp"

#include <algorithm>
#include <utility>

namespace emm::pool {

// The table is at most half full, so that every search in it meets an empty slot.
Arenas::ArenaSlot* Arenas::slot_with(std::uint64_t key) noexcept {
  for (auto slot = slot_of(key); table_[slot].arena.load(std::memory_order_acquire) != nullptr;
       slot = (slot + 1) % kSlots) {
    if (table_[slot].key == key) return &table_[slot];
  }
  return nullptr;
}

Arena& Arenas::make(std::uint64_t key, StreamHandle stream, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto* const slot = slot_with(key);
  if (slot != nullptr && slot->arena != nobodys_.get()) return *slot->arena;
  const auto other = others_.find(key);
  if (other != others_.end()) return *other->second;
  const bool is_main = kind == Kind::main;
  if (!is_main || arenas_.size() < growth::kConstants.arenas_kept || !pass_one_on(key, stream)) {
    next_to_pass_on_ = arenas_.size();
    arenas_.push_back(std::make_unique<Arena>(
        owner_, *driver_, backing_, stream == kLegacyStream ? StreamHandle{} : stream,
        granule_shift_, count_split_, is_main ? book_ : nullptr, is_main ? this : nullptr));
    keys_.push_back(key);
    // A single arena has nobody to lend to. Slabs are not lent: notes then serve passing on alone.
    const auto from =
        backing_.kind() == Backing::Kind::vmm ? 2 : growth::kConstants.arenas_kept / 2;
    if (arenas_.size() == from) {
      for (const auto& arena : arenas_) arena->note_ends();
    } else if (arenas_.size() > from) {
      arenas_.back()->note_ends();
    }
  }
  enter(key, next_to_pass_on_);
  return *arenas_[next_to_pass_on_++];
}

// Gives an arena that holds nothing to a new stream; next_to_pass_on_ then names it. They are tried
// in turn, so that the one that was passed on last comes last.
bool Arenas::pass_one_on(std::uint64_t key, StreamHandle stream) {
  for (std::size_t tries = 0; tries < arenas_.size(); ++tries, ++next_to_pass_on_) {
    if (next_to_pass_on_ >= arenas_.size()) next_to_pass_on_ = 0;
    if (!arenas_[next_to_pass_on_]->pass_on(stream)) continue;
    if (nobodys_ == nullptr) {
      nobodys_ = std::make_unique<Arena>(owner_, *driver_, backing_, kNoStream, granule_shift_,
                                         count_split_);
      nobodys_->serve_nobody();
    }
    leave(std::exchange(keys_[next_to_pass_on_], key));
    return true;
  }
  return false;
}

void Arenas::enter(std::uint64_t key, std::size_t index) {
  auto& arena = *arenas_[index];
  if (auto* const slot = slot_with(key); slot != nullptr)
    return slot->arena.store(&arena, std::memory_order_release);
  if (entered_ >= kSlots / 2) {
    others_[key] = &arena;
    return;
  }
  ++entered_;
  auto slot = slot_of(key);
  while (table_[slot].arena.load(std::memory_order_relaxed) != nullptr) slot = (slot + 1) % kSlots;
  // `key` is stored first: of() reads it without a lock once it has acquired `arena`.
  table_[slot].key = key;
  table_[slot].arena.store(&arena, std::memory_order_release);
}

// A slot keeps its key, so that of() may read it without a lock.
void Arenas::leave(std::uint64_t key) {
  if (others_.erase(key) > 0) return;
  slot_with(key)->arena.store(nobodys_.get(), std::memory_order_release);
}

Arena* Arenas::at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return index < arenas_.size() ? arenas_[index].get() : nullptr;
}

std::uint64_t Arenas::make_and_count_frees() noexcept {
  std::uint64_t sum = 0;
  for_each([&](Arena& arena) { sum += arena.make_and_count_frees(); });
  return sum;
}

namespace {

/// Holds the locks of all arenas if all were free; tests false otherwise.
class AllLocked {
 public:
  explicit AllLocked(const std::vector<std::unique_ptr<Arena>>& arenas) noexcept : arenas_(arenas) {
    while (locked_ < arenas_.size() && arenas_[locked_]->try_lock()) ++locked_;
  }
  AllLocked(const AllLocked&) = delete;
  AllLocked& operator=(const AllLocked&) = delete;
  ~AllLocked() {
    while (locked_ > 0) arenas_[--locked_]->unlock();
  }
  explicit operator bool() const noexcept { return locked_ == arenas_.size(); }

 private:
  const std::vector<std::unique_ptr<Arena>>& arenas_;
  std::size_t locked_ = 0;
};

}  // namespace

// Does not wait for a busy arena: the request then takes the slow path, which finds out.
bool Arenas::cannot_serve(const Arena& asker, std::uint64_t size) noexcept {
  if (size >= asker.largest()) return true;
  const auto limit = std::min(backing_.max(), backing_.device());
  const auto room = [&] { return limit - std::min(limit, backing_.reserved_bytes()); };
  // The driver may have the memory. Then no arena needs to be locked.
  if (size <= limit && Backing::in_pages(size) <= room()) return false;

  const std::lock_guard no_arena_is_added(mutex_);
  // All locks at once: if one arena released memory and another took it during the sum, the sum
  // would miss it in both. The locks are only tried, so that neither another thread here nor an
  // arena's owner in the driver can block this one.
  const AllLocked all_locked(arenas_);
  if (!all_locked) return size > limit;
  FitCheck check{.size = size, .limit = limit};
  for (const auto& arena : arenas_) check.add(arena->supply(), arena.get() == &asker);
  return check.fails(room());
}

}  // namespace emm::pool
