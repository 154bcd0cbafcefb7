#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/driver.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_observer.hpp"

namespace emm {

/// Frees that have been asked for and not yet made, oldest first: numba's _PendingDeallocs (PD-1 to
/// PD-18).
///
/// add() flushes the queue when, with the new item, it holds more than `limits.count` items or more
/// than floor(capacity * limits.ratio) bytes; both comparisons are strict, and an unset capacity is
/// 0, so any sized item then flushes. Never while a guard from disable() lives, and not when one
/// ends. A flush makes every free, in order, also those added meanwhile.
///
/// A free that the driver refuses is out of the queue and counted in failures(), and the observer
/// hears of it. The flush goes on with the others and reports the first error at its end. In
/// Profile::numba it stops there: the rest stays queued, and bytes() keeps the total from before
/// the flush (PD-11).
///
/// The observer's flushed() is called once for each flush that took something out, at its end, with
/// what it took, refused frees included.
///
/// Any thread may call; each free is made once, without the lock held (ERR-6). The driver must
/// outlive this.
class PendingDeallocs {
 public:
  struct Limits {
    std::size_t count = 10;  ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT's default.
    double ratio =
        0.2;  ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO's default. Not negative, not NaN.
  };

  /// `driver` may be null in a queue that is never added to, as that of a probe (SEL-5).
  PendingDeallocs(Driver* driver, Limits limits, ManagerObserver* observer = nullptr,
                  Profile profile = Profile::standard) noexcept;
  PendingDeallocs(Driver& driver, Limits limits, ManagerObserver* observer = nullptr,
                  Profile profile = Profile::standard) noexcept
      : PendingDeallocs(&driver, limits, observer, profile) {}
  ~PendingDeallocs();  ///< Abandons what is queued, as at numba's exit (ERR-3); call clear() to
                       ///< free it.
  PendingDeallocs(const PendingDeallocs&) = delete;
  PendingDeallocs& operator=(const PendingDeallocs&) = delete;

  /// Makes room for one more item, so that one later add() allocates nothing. May throw bad_alloc.
  void reserve_slot();
  /// Gives back a slot that no add() will use.
  void release_slot() noexcept;
  /// `dtor` is mem_free, mem_free_host, event_destroy, stream_destroy or library_unload; `size`
  /// empty is numba's UNSET: the item counts, its bytes do not.
  Status add(Call dtor, std::uint64_t handle, std::optional<std::uint64_t> size) noexcept;
  /// Nothing while disabled; else frees all, and waits for frees that other threads have under way.
  /// The first error, if any.
  Status clear() noexcept;
  [[nodiscard]] DeferCleanup disable() noexcept;
  bool is_disabled() const noexcept;

  void set_memory_capacity(std::uint64_t bytes) noexcept;
  std::optional<std::uint64_t> memory_capacity() const noexcept;
  void set_limits(Limits limits) noexcept;  ///< From the next add() on (PD-5).
  std::size_t size() const noexcept;
  std::uint64_t bytes() const noexcept;  ///< The counted bytes of what is queued.
  std::size_t failures() const noexcept;

 private:
  struct Item {
    std::uint64_t handle = 0;
    std::uint64_t bytes = 0;
    Call dtor = Call::mem_free;
  };

  bool over_limit() const noexcept;
  void make_room(std::size_t items);
  Status flush(std::unique_lock<std::mutex> lock) noexcept;
  Status destroy(const Item& item) noexcept;

  Driver* driver_;
  ManagerObserver* observer_;
  Profile profile_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  Limits limits_;
  std::vector<Item> ring_;  ///< A power of two long, or empty.
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t reserved_ = 0;
  std::size_t under_way_ = 0;  ///< Items taken out whose free has not returned.
  std::uint64_t bytes_ = 0;
  std::optional<std::uint64_t> capacity_;
  std::size_t disabled_ = 0;
  std::size_t failures_ = 0;
};

}  // namespace emm
