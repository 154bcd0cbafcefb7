#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/ids.hpp"
#include "emm/memory_pointer.hpp"
#include "trace/op.hpp"

namespace emm::replay {

/// Device or managed memory that a replay holds. It fills two cache lines, because its neighbours
/// may belong to other threads.
struct alignas(128) Live {
  MemoryPointer memory;
  std::uint64_t size = 0;  ///< As requested.
  AllocId id{};
  ContextId context{};
  StreamId stream{};
  ThreadId made_on{};
  trace::Op made_by = trace::Op::memalloc;
  bool ended = false;   ///< A reset has ended it: no longer live, but its finalizer has not run.
  bool placed = false;  ///< Its range is in its device's address map.
};

/// The device and managed memory that a replay holds, by AllocId. It takes four bytes for each id
/// of the trace, and an entry for each held allocation.
///
/// Threads that add and forget at the same time have a Cache each. Another thread may read an entry
/// once slot() returns it there.
class LiveSet {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};  // no entry

  /// The free entries of one thread.
  class alignas(128) Cache {
    friend class LiveSet;
    std::uint32_t free = kNone;  ///< The first free entry; its `size` is the next free one.
    std::uint32_t next = 0, end = 0;
    std::int64_t held = 0;
  };

  explicit LiveSet(std::size_t ids, std::size_t caches = 1)
      : count_(ids),
        lines_(ids / kPerLine + caches),
        slots_(std::make_unique<Line[]>(lines_)),
        blocks_(ids / kBlock + caches + 1),
        caches_(caches) {
    expect_all();
  }
  /// Arranges the slots so that no cache line has ids of two makers, or two ids that one maker
  /// makes soon after each other. `made` lists each maker's ids in the order in which they are
  /// made; there are fewer makers than caches. An id that no maker makes goes to the last.
  /// REQUIRES: nothing is held.
  void group(const std::vector<std::vector<AllocId>>& made);
  /// Marks every id as not yet made. REQUIRES: nothing is held.
  void expect_all() noexcept {
    for (std::size_t i = 0; i < lines_; ++i) {
      for (auto& slot : slots_[i].of) slot.store(kUndecided, std::memory_order_relaxed);
    }
  }

  Cache& cache(std::size_t number = 0) noexcept { return caches_[number]; }
  /// Takes an entry for `id`, which other threads see only after show(). REQUIRES: nothing is held
  /// for `id`.
  [[gnu::always_inline]] std::uint32_t add(AllocId id, Cache& cache) {
    const auto slot = take(cache);
    ++cache.held;
    (*this)[slot].id = id;
    return slot;
  }
  /// Shows the entry to all threads. The release store publishes what the caller wrote into the
  /// entry; slot() acquires it.
  void show(std::uint32_t slot) noexcept {
    auto& shown = slot_of((*this)[slot].id);
    EMM_ASSERT(shown.load(std::memory_order_relaxed) >= kSpecial);
    shown.store(slot, std::memory_order_release);
  }
  std::uint32_t slot(AllocId id) const noexcept {
    const auto slot = slot_of(id).load(std::memory_order_acquire);
    return slot < kSpecial ? slot : kNone;
  }
  /// Answers whether the request for `id` has been executed: it was made or refused.
  bool is_decided(AllocId id) const noexcept {
    return slot_of(id).load(std::memory_order_acquire) != kUndecided;
  }
  /// Answers whether `id` is held no longer, or never will be.
  bool has_ended(AllocId id) const noexcept {
    return slot_of(id).load(std::memory_order_acquire) == kNotHeld;
  }
  /// Ends the id. The caller gives the entry to reuse() once the memory has ended.
  ///
  /// The release store pairs with the acquire load in has_ended(): a thread that sees the end also
  /// sees that nobody uses the memory any more. So AddressShards may leave the range of an ended id
  /// in its map. An insertion that meets the range asks has_ended() and erases it.
  void hide(std::uint32_t slot) noexcept {
    slot_of((*this)[slot].id).store(kNotHeld, std::memory_order_release);
  }
  // These prefetch what slot() reads, in two steps, and then the entry. The slot and the entry are
  // fetched for writing.
  void prefetch_place(AllocId id) const noexcept {
    if (index(id) < place_.size()) __builtin_prefetch(&place_[index(id)]);
  }
  void prefetch_slot(AllocId id) const noexcept {
    if (index(id) < count_) own(&slot_of(id));
  }
  void prefetch_entry(AllocId id) const noexcept {
    if (index(id) >= count_) return;
    const auto found = slot(id);
    if (found == kNone) return;
    const auto* entry = &(*this)[found];
    own(entry);
    own(reinterpret_cast<const char*>(entry) + kLine);
  }
  /// Notes that the event for `id` has been executed and that `id` is not held here.
  void mark_not_held(AllocId id) noexcept {
    auto& slot = slot_of(id);
    if (slot.load(std::memory_order_relaxed) == kUndecided) {
      slot.store(kNotHeld, std::memory_order_release);
    }
  }
  Live& operator[](std::uint32_t slot) noexcept { return blocks_[slot / kBlock][slot % kBlock]; }
  const Live& operator[](std::uint32_t slot) const noexcept {
    return blocks_[slot / kBlock][slot % kBlock];
  }
  /// Hides the entry and takes it back. REQUIRES: its memory has ended.
  void forget(std::uint32_t slot, Cache& cache) noexcept {
    hide(slot);
    reuse(slot, cache);
  }
  /// Takes back a hidden entry. REQUIRES: its memory has ended.
  void reuse(std::uint32_t slot, Cache& cache) noexcept {
    (*this)[slot].size = cache.free;
    cache.free = slot;
    --cache.held;
  }
  /// Ends the memory and forgets the entry.
  void end(std::uint32_t slot, Cache& cache) noexcept {
    (*this)[slot].memory = MemoryPointer();
    forget(slot, cache);
  }
  std::size_t held() const noexcept {
    std::int64_t held = 0;
    for (const auto& cache : caches_) held += cache.held;
    return static_cast<std::size_t>(held);
  }
  /// The slots in use, in the order of their ids. REQUIRES: no other thread adds or forgets.
  std::vector<std::uint32_t> by_id() const {
    std::vector<std::uint32_t> used;
    const auto count = held();
    if (count == 0) return used;
    used.reserve(count);
    const auto entries = static_cast<std::uint32_t>(made_ * kBlock);
    for (std::uint32_t at = 0; at < entries; ++at) {
      if (slot((*this)[at].id) == at) used.push_back(at);
    }
    std::sort(used.begin(), used.end(),
              [&](std::uint32_t a, std::uint32_t b) { return (*this)[a].id < (*this)[b].id; });
    return used;
  }

 private:
  static constexpr std::size_t kBlock = 256;  // entries that a thread takes at a time
  // Bytes of a cache line.
  static constexpr std::size_t kLine = 64, kPerLine = kLine / sizeof(std::uint32_t);
  struct alignas(kLine) Line {
    std::atomic<std::uint32_t> of[kPerLine];
  };
  // In place of an entry: values that no entry has.
  static constexpr std::uint32_t kUndecided = kNone - 1, kNotHeld = kNone - 2, kSpecial = kNone - 2;

  std::atomic<std::uint32_t>& slot_of(AllocId id) const noexcept {
    const std::size_t place = place_.empty() ? index(id) : place_[index(id)];
    return slots_[place / kPerLine].of[place % kPerLine];
  }
  /// Prefetches the line for writing, which takes it from other processors.
  static void own(const void* line) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
  }
  /// Gives the cache a new block of entries.
  [[gnu::noinline]] void grow(Cache& cache) {
    auto block = std::make_unique<Live[]>(kBlock);
    const std::lock_guard lock(growing_);
    EMM_ASSERT(made_ < blocks_.size());
    blocks_[made_] = std::move(block);
    cache.next = static_cast<std::uint32_t>(made_++ * kBlock);
    cache.end = cache.next + static_cast<std::uint32_t>(kBlock);
  }
  [[gnu::always_inline]] std::uint32_t take(Cache& cache) {
    if (cache.free != kNone) {
      const auto slot = cache.free;
      cache.free = static_cast<std::uint32_t>((*this)[slot].size);
      return slot;
    }
    if (cache.next == cache.end) grow(cache);
    return cache.next++;
  }

  std::size_t count_, lines_;
  std::unique_ptr<Line[]> slots_;
  std::vector<std::uint32_t> place_;  ///< By id. Empty means that each id is at its own number.
  std::vector<std::unique_ptr<Live[]>> blocks_;
  std::vector<Cache> caches_;
  // The members below are written while threads read those above.
  alignas(128) std::mutex growing_;
  std::size_t made_ = 0;  ///< The number of blocks made.
};

inline void LiveSet::group(const std::vector<std::vector<AllocId>>& made) {
  constexpr auto kNowhere = ~std::uint32_t{0};
  place_.assign(count_, kNowhere);
  std::size_t begin = 0;  // lines
  for (std::size_t maker = 0; maker < made.size(); ++maker) {
    std::vector<AllocId> ids;
    for (const auto id : made[maker]) {
      if (std::exchange(place_[index(id)], 0) == kNowhere) ids.push_back(id);
    }
    for (std::uint32_t id = 0; maker + 1 == made.size() && id < count_; ++id) {
      if (place_[id] == kNowhere) ids.push_back(AllocId{id});
    }
    const auto lines = (ids.size() + kPerLine - 1) / kPerLine;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      place_[index(ids[i])] =
          static_cast<std::uint32_t>((begin + i % lines) * kPerLine + i / lines);
    }
    begin += lines;
  }
  EMM_ASSERT(begin <= lines_);
}

}  // namespace emm::replay
