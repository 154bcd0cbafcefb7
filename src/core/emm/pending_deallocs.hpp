#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/call.hpp"
#include "driver/driver.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_observer.hpp"

namespace emm {

/// Pending frees, oldest first: numba's _PendingDeallocs (PD-1 to PD-18).
///
/// add() flushes the queue if it then holds more than `limits.count` items or more than
/// floor(capacity * limits.ratio) bytes. An unset capacity is 0, so any sized item then flushes.
/// There is no flush while a guard from disable() lives, nor when a guard ends. A flush makes every
/// free in order, including those added meanwhile. disable() on another thread ends a flush after
/// the free that is under way; in Profile::numba the flush goes on.
///
/// A free that the driver refuses leaves the queue, counts in failures(), and is told to the
/// observer. The flush goes on and returns the first error at its end. In Profile::numba it stops
/// there: the rest stays queued, and bytes() keeps the total from before the flush (PD-11).
///
/// At the end of each flush that took items out, the observer's flushed() is called once with their
/// count and bytes, including refused frees.
///
/// Any thread may call; each free is made once, with no lock held (ERR-6). The driver must outlive
/// the queue.
class PendingDeallocs {
 public:
  struct Limits {
    std::size_t count = 10;  ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT's default.
    double ratio =
        0.2;  ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO's default. Not negative, not NaN.
  };

  /// `driver` may be null if nothing is ever added, as in a probe (SEL-5).
  PendingDeallocs(Driver* driver, Limits limits, ManagerObserver* observer = nullptr,
                  Profile profile = Profile::standard) noexcept;
  PendingDeallocs(Driver& driver, Limits limits, ManagerObserver* observer = nullptr,
                  Profile profile = Profile::standard) noexcept
      : PendingDeallocs(&driver, limits, observer, profile) {}
  ~PendingDeallocs();  ///< Abandons queued frees, as numba does at exit (ERR-3); clear() makes
                       ///< them.
  PendingDeallocs(const PendingDeallocs&) = delete;
  PendingDeallocs& operator=(const PendingDeallocs&) = delete;

  /// Reserves capacity, so that one later add() allocates nothing. May throw bad_alloc.
  void reserve_slot();
  /// Gives back a slot that no add() will use.
  void release_slot() noexcept;
  /// `dtor` is mem_free, mem_free_host, event_destroy, stream_destroy or library_unload. An empty
  /// `size` is numba's UNSET: the item counts, but it has no bytes.
  Status add(Call dtor, std::uint64_t handle, std::optional<std::uint64_t> size) noexcept;
  /// Makes all frees, and waits for those that other threads are making. Does nothing while
  /// disabled. Returns the first error.
  Status clear() noexcept;
  [[nodiscard]] DeferCleanup disable() noexcept;
  bool is_disabled() const noexcept;

  void set_memory_capacity(std::uint64_t bytes) noexcept;
  std::optional<std::uint64_t> memory_capacity() const noexcept;
  void set_limits(Limits limits) noexcept;  ///< From the next add() on (PD-5).
  std::size_t size() const noexcept;
  std::uint64_t bytes() const noexcept;  ///< The counted bytes of queued frees.
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
  std::vector<Item> ring_;  ///< Its size is a power of two, or 0.
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
