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

/// The arenas of a pool by stream. Finding an arena that exists takes no lock, while the program
/// has named fewer than 512 streams. Arenas live until the pool ends, but a new stream may be given
/// the arena of another one that holds nothing: who finds an arena asks it whose it is. Any thread
/// may call.
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
  Arena& of(StreamHandle stream) { return find(key_of(stream), stream, Kind::main); }
  /// Another arena of the same stream, for what a plan has no place for. It is never passed on, and
  /// follows no plan.
  Arena& beside(StreamHandle stream) {
    // No address of a stream and no number of a thread is that high.
    return find(key_of(stream) ^ std::uint64_t{1} << 62, stream, Kind::beside);
  }
  /// As of(), where that arena has turned out to be another stream's meanwhile.
  Arena& again_of(StreamHandle stream) { return make(key_of(stream), stream, Kind::main); }
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
  // Streams that are found without the map; others are found in it.
  static constexpr std::size_t kSlots = 1024;
  static constexpr StreamHandle kNoStream{~std::uint64_t{0}};  // no handle of CUDA's
  struct ArenaSlot {
    std::uint64_t key = 0;               ///< Written before `arena`, and never again.
    std::atomic<Arena*> arena{nullptr};  ///< nobodys_ once it is another stream's.
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
  enum class Kind : std::uint8_t { main, beside };
  Arena& find(std::uint64_t key, StreamHandle stream, Kind kind) {
    for (auto slot = slot_of(key);; slot = (slot + 1) % kSlots) {
      const auto& entry = table_[slot];
      auto* arena = entry.arena.load(std::memory_order_acquire);
      if (arena == nullptr) return make(key, stream, kind);
      if (entry.key == key) return *arena;
    }
  }
  Arena& make(std::uint64_t key, StreamHandle stream, Kind kind);
  ArenaSlot* slot_with(std::uint64_t key) noexcept;
  void enter(std::uint64_t key, std::size_t index);
  void leave(std::uint64_t key);
  bool pass_one_on(std::uint64_t key, StreamHandle stream);
  Arena* at(std::size_t index) const;  ///< Null behind the last arena.

  void* owner_;
  Driver* driver_;
  Backing& backing_;
  unsigned granule_shift_;
  bool count_split_;
  PlanBook* book_;
  /// Guards the members below, and changes of table_. No deadlock: a thread that holds it only
  /// tries the arenas' locks.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::uint64_t> keys_;  ///< The arenas' keys, in their order.
  std::size_t entered_ = 0;          ///< Slots of table_ that are in use.
  std::size_t next_to_pass_on_ = 0;
  std::unique_ptr<Arena> nobodys_;          ///< Serves no stream.
  std::map<std::uint64_t, Arena*> others_;  ///< Arenas that table_ has no room for.
  std::array<ArenaSlot, kSlots> table_{};
};

}  // namespace emm::pool
