#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

class Arena;

/// What the arenas of one pool know of each other without a lock. Any thread may call.
class ArenaGroup {
 public:
  /// The one that was made last; null where there is none.
  Arena* youngest() const noexcept { return youngest_.load(std::memory_order_acquire); }
  /// REQUIRES: one at a time.
  void joined_by(Arena* arena) noexcept {
    state_.fetch_add(kChange + 1, std::memory_order_acq_rel);
    youngest_.store(arena, std::memory_order_release);
  }

  // Watching (arena_watch.cpp): as long as all of them are watched, the sum of what each could give
  // at most is at hand.
  /// Changes whenever one of them is watched no more, or a new one is not.
  using State = std::uint64_t;
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  static bool all_are_watched(State state) noexcept { return (state & (kChange - 1)) == 0; }
  void watch_begins(std::uint64_t whole) noexcept {
    whole_.fetch_add(whole, std::memory_order_relaxed);
    state_.fetch_sub(1, std::memory_order_acq_rel);
  }
  void watch_ends(std::uint64_t whole) noexcept {
    state_.fetch_add(kChange + 1, std::memory_order_acq_rel);
    whole_.fetch_sub(whole, std::memory_order_release);
  }
  /// Bytes of spans that are wholly free, or out of play. Modulo 2^64.
  void add_whole(std::uint64_t bytes) noexcept {
    if (bytes != 0) whole_.fetch_add(bytes, std::memory_order_release);
  }
  std::uint64_t whole() const noexcept { return whole_.load(std::memory_order_acquire); }

  /// A free was left in an inbox, since the inboxes were emptied while none could be filled unseen.
  void has_left() noexcept {
    if (!any_left_.load(std::memory_order_relaxed))
      any_left_.store(true, std::memory_order_relaxed);
  }
  bool any_left() const noexcept { return any_left_.load(std::memory_order_relaxed); }
  /// REQUIRES: the locks of all are held, and all inboxes are emptied then under their locks,
  /// whether they seem filled or not.
  void forget_left() noexcept { any_left_.store(false, std::memory_order_relaxed); }

  /// How often somebody asked, or nearly: whoever is watched goes on while that changes.
  std::uint32_t asked() const noexcept { return asked_.load(std::memory_order_relaxed); }
  void ask() noexcept { asked_.store(asked() + 1, std::memory_order_relaxed); }

 private:
  static constexpr State kChange = State{1} << 32;

  std::atomic<Arena*> youngest_{nullptr};
  std::atomic<bool> any_left_{false};
  // Written at every free that makes a span whole, while there are refusals: apart from the others,
  // which are hardly ever written.
  alignas(64) std::atomic<State> state_{0};  ///< Below kChange: how many are not watched.
  std::atomic<std::uint64_t> whole_{0};
  std::atomic<std::uint32_t> asked_{0};
};

}  // namespace emm::pool
