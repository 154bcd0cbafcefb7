#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "managers/pool/arena.hpp"

namespace emm::pool {

/// The arenas of a pool by stream. Finding an arena that exists takes no lock. Arenas live until
/// the pool ends. Any thread may call.
class Arenas {
 public:
  /// `driver` may be null in a probe, and `book` where there is no plan.
  Arenas(void* owner, Driver* driver, Backing& backing, unsigned granule_shift, bool count_split,
         PlanBook* book) noexcept
      : owner_(owner),
        driver_(driver),
        backing_(backing),
        granule_shift_(granule_shift),
        count_split_(count_split),
        book_(book) {}

  /// CU_STREAM_LEGACY is the default stream; CU_STREAM_PER_THREAD is another stream on every
  /// thread.
  Arena& of(StreamHandle stream) {
    const auto key = key_of(stream);
    for (auto slot = slot_of(key);; slot = (slot + 1) % kSlots) {
      const auto& entry = table_[slot];
      auto* arena = entry.arena.load(std::memory_order_acquire);
      if (arena == nullptr) return make(key, stream);
      if (entry.key == key) return *arena;
    }
  }
  /// Calls visit(arena) for each arena in the order of creation. Takes nothing from the heap.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t index = 0; auto* const arena = at(index); ++index) visit(*arena);
  }

  /// Makes the queued remote frees of all arenas and returns how many allocations have ever ended.
  /// Takes each arena's lock in turn.
  std::uint64_t make_and_count_frees() noexcept;
  /// The fit check: true if nothing can serve a request for `size` in `asker`, whose free blocks do
  /// not hold it. False if that is unknown. Takes about 25 ns for each arena and 11 ns for each
  /// free block of a span or more (refusal_bench).
  bool cannot_serve(const Arena& asker, std::uint64_t size) noexcept;

 private:
  static constexpr std::size_t kSlots = 1024;
  struct ArenaSlot {
    std::uint64_t key = 0;  ///< Written before `arena`, and never again.
    std::atomic<Arena*> arena{nullptr};
  };

  static std::uint64_t key_of(StreamHandle stream) noexcept {
    if (stream == kLegacyStream) return 0;
    // No address of a stream is that high.
    return stream == kPerThreadStream ? ~Arena::thread_number() : stream.value;
  }
  static std::size_t slot_of(std::uint64_t key) noexcept {
    // The upper 10 bits select one of the kSlots slots. Lower bits of the product depend on few
    // bits of the key, and the low bits of addresses vary little.
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 54);
  }
  Arena& make(std::uint64_t key, StreamHandle stream);
  Arena* at(std::size_t index) const;  ///< Null behind the last arena.

  void* owner_;
  Driver* driver_;
  Backing& backing_;
  unsigned granule_shift_;
  bool count_split_;
  PlanBook* book_;
  /// Guards arenas_, others_ and additions to table_. No deadlock: a thread that holds it only
  /// tries the arenas' locks (cannot_serve()), and no thread takes it while it holds an arena's
  /// lock.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::map<std::uint64_t, Arena*> others_;  ///< Arenas that table_ has no room for.
  std::array<ArenaSlot, kSlots> table_{};
};

}  // namespace emm::pool
