#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/thread_address.hpp"
#include "emm/memory_pointer.hpp"
#include "plugin/emm_plugin.h"

namespace emm::libemm {

/// Keeps lifetimes by token. Any thread.
///
/// A lifetime is in a slot, which serves again once it was freed. A thread keeps idle slots for
/// itself, so that it takes no lock; it shares them where it has none left, or too many.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  /// Ends the lifetimes that are left.
  ~HeldMemory();

  /// Keeps a lifetime and returns its token, which is never 0. If the host has no memory for it,
  /// this throws std::bad_alloc and leaves the lifetime as it was.
  emm_token hold(Lifetime&& lifetime) {
    auto* const kept = of_this_thread();
    auto* slot = kept != nullptr ? kept->first.load(std::memory_order_acquire) : nullptr;
    if (slot == nullptr) [[unlikely]] {
      slot = &idle_slot();
    } else {
      --kept->count;
      kept->first.store(slot->next, std::memory_order_release);
    }
    // An idle slot owns nothing that would have to end before.
    std::construct_at(&slot->lifetime, std::move(lifetime));
    const auto generation = slot->generation.load(std::memory_order_relaxed) + 1;
    slot->generation.store(generation, std::memory_order_release);
    return (emm_token{generation} << 32) | slot->number;
  }

  /// Frees the memory of a token, whose slot then serves again. False if the token's memory was
  /// freed before, or never held.
  bool free(emm_token token, StreamHandle stream) noexcept {
    auto* const slot = slot_at(static_cast<std::uint32_t>(token));
    auto generation = static_cast<std::uint32_t>(token >> 32);
    // Of two threads with the same token, one gets the lifetime.
    if (slot == nullptr || generation % 2 == 0 ||
        !slot->generation.compare_exchange_strong(
            generation, generation + 1, std::memory_order_acq_rel, std::memory_order_relaxed))
        [[unlikely]]
      return false;
    if (slot->lifetime.alive()) [[likely]] {
      static_cast<void>(slot->lifetime.free(stream));
    } else {
      slot->lifetime = {};
    }
    auto* const kept = of_this_thread();
    if (kept == nullptr) [[unlikely]] {
      keep_slowly(*slot);
      return true;
    }
    slot->next = kept->first.load(std::memory_order_acquire);
    if (kept->count == kMost) [[unlikely]] {
      keep_slowly(*slot);
    } else {
      ++kept->count;
      kept->first.store(slot, std::memory_order_release);
    }
    return true;
  }
  /// Whether the token was one that hold() returned. REQUIRES: free() was false for it.
  bool was_held(emm_token token) const noexcept;
  /// Whether nothing is held, if no other thread calls now.
  bool is_empty() const noexcept;

 private:
  static constexpr std::uint32_t kFirst = 64;  ///< Slots of the first block.
  static constexpr std::uint32_t kMost = 128;  ///< Idle slots that a thread keeps.
  static constexpr std::size_t kThreads = 64;  ///< Threads that may keep some.
  static constexpr std::size_t kPlaces =
      8;  ///< Places that a thread looks at, one after the other.
  static constexpr std::size_t kBlocks = 27;  ///< Each has twice as many slots as the last one.

  struct alignas(64) Slot {
    Lifetime lifetime;
    /// Odd while the slot holds a lifetime. It is part of the token, so a stale token does not
    /// match.
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t number = 0;
    Slot* next = nullptr;  ///< The next idle slot; while it is held, the next of the holder's list.
  };
  /// Idle slots of the thread `owner`. No other thread touches them until that one has ended and
  /// has a successor of the same address. `first` is stored and loaded in order for that successor.
  struct alignas(64) OfThread {
    std::atomic<std::uintptr_t> owner{0};
    std::atomic<Slot*> first{nullptr};
    std::uint32_t count = 0;
  };

  static std::size_t home_of_this_thread() noexcept {
    // The upper 6 bits of the product select one of kThreads.
    return (thread_address() * 0x9e3779b97f4a7c15u) >> 58;
  }
  /// Null if the calling thread keeps no slots yet, or found no place for them.
  OfThread* of_this_thread() noexcept {
    auto& home = threads_[home_of_this_thread()];
    return home.owner.load(std::memory_order_relaxed) == thread_address() ? &home
                                                                          : away_from_home();
  }
  Slot* slot_at(std::uint32_t number) const noexcept {
    const auto from_first = std::uint64_t{number} + kFirst;
    const auto block = static_cast<std::size_t>(std::bit_width(from_first / kFirst)) - 1;
    auto* const slots = blocks_[block].load(std::memory_order_acquire);
    return slots != nullptr ? slots + (from_first - (std::uint64_t{kFirst} << block)) : nullptr;
  }
  OfThread* away_from_home() noexcept;
  OfThread* claimed_by_this_thread() noexcept;
  Slot& idle_slot();
  void keep_slowly(Slot& slot) noexcept;
  void add_block();
  Slot* take_shared() noexcept;

  std::array<OfThread, kThreads> threads_{};
  std::array<std::atomic<Slot*>, kBlocks> blocks_{};
  std::mutex mutex_;        ///< Guards the next two.
  Slot* shared_ = nullptr;  ///< Idle slots that no thread keeps.
  std::size_t made_ = 0;    ///< How many of blocks_ there are.
};

}  // namespace emm::libemm
