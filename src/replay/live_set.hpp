#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "base/ids.hpp"
#include "emm/memory_pointer.hpp"
#include "trace/op.hpp"

namespace emm::replay {

/// Device or managed memory that a replay holds.
struct Live {
  MemoryPointer memory;
  std::uint64_t size = 0;  ///< As requested.
  AllocId id{};
  ContextId context{};
  StreamId stream{};
  trace::Op made_by = trace::Op::memalloc;
  bool ended = false;   ///< By a reset: not live any more, but its finalizer is still to run.
  bool placed = false;  ///< Stands in the address map of its device.
};

/// The device and managed memory that a replay holds, by AllocId: four bytes for each id of the
/// trace and an entry for each allocation that is held.
class LiveSet {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  LiveSet(std::size_t ids, std::size_t expected) : slots_(ids, kNone) {
    entries_.reserve(expected);
  }

  /// REQUIRES: nothing is held for `id`.
  std::uint32_t add(AllocId id) {
    auto& slot = slots_[index(id)];
    EMM_ASSERT(slot == kNone);
    if (free_ == kNone) {
      slot = static_cast<std::uint32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      slot = free_;
      free_ = static_cast<std::uint32_t>(entries_[slot].size);
    }
    ++held_;
    entries_[slot].id = id;
    return slot;
  }
  std::uint32_t slot(AllocId id) const noexcept { return slots_[index(id)]; }
  Live& operator[](std::uint32_t slot) noexcept { return entries_[slot]; }
  const Live& operator[](std::uint32_t slot) const noexcept { return entries_[slot]; }
  /// Forgets the entry, whose memory has ended.
  void forget(std::uint32_t slot) noexcept {
    auto& entry = entries_[slot];
    slots_[index(entry.id)] = kNone;
    entry.size = free_;
    free_ = slot;
    --held_;
  }
  /// Ends the memory and forgets the entry.
  void end(std::uint32_t slot) noexcept {
    entries_[slot].memory = MemoryPointer();
    forget(slot);
  }
  std::size_t held() const noexcept { return held_; }
  /// The slots in use, in the order of their ids.
  std::vector<std::uint32_t> by_id() const {
    std::vector<std::uint32_t> used;
    if (held_ == 0) return used;
    used.reserve(held_);
    for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
      if (slots_[index(entries_[slot].id)] == slot) used.push_back(slot);
    }
    std::sort(used.begin(), used.end(),
              [&](std::uint32_t a, std::uint32_t b) { return entries_[a].id < entries_[b].id; });
    return used;
  }

 private:
  std::vector<std::uint32_t> slots_;
  std::vector<Live> entries_;
  std::uint32_t free_ = kNone;  ///< The first free entry, whose `size` is the next.
  std::size_t held_ = 0;
};

}  // namespace emm::replay
