#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "driver/driver.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_observer.hpp"

namespace emm {

/// Frees that have been asked for and not yet made, oldest first: numba's _PendingDeallocs (PD-1 to PD-18).
///
/// add() flushes the queue when, with the new item, it holds more than `limits.count` items or more than
/// floor(capacity * limits.ratio) bytes; both comparisons are strict, and an unset capacity is 0, so any
/// sized item then flushes. Never while a guard from disable() lives, and not when one ends. A flush makes
/// every free, in order, also those added meanwhile.
///
/// A free that the driver refuses is out of the queue and counted in failures(); the flush goes on with the
/// others and reports the first error at its end. (numba stops there and miscounts: PD-11. In
/// Profile::numba the rest stays queued, as there.)
///
/// Any thread may call; a destructor runs once, without the lock held (ERR-6). The driver must outlive this.
class PendingDeallocs {
 public:
  struct Limits {
    std::size_t count = 10;  ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT's default.
    double ratio = 0.2;      ///< NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO's default.
  };

  PendingDeallocs(Driver& driver, Limits limits, ManagerObserver* observer = nullptr,
                  Profile profile = Profile::standard) noexcept;
  ~PendingDeallocs();  ///< Abandons what is queued, as at numba's exit (ERR-3); call clear() to free it.

  /// Makes room for one more item, so that add() allocates nothing. May throw bad_alloc; add() does not.
  void reserve_slot();
  /// `dtor` is mem_free, mem_free_host, event_destroy, stream_destroy or library_unload; `size` empty is
  /// numba's UNSET: the item counts, its bytes do not.
  Status add(Call dtor, std::uint64_t handle, std::optional<std::uint64_t> size) noexcept;
  /// Nothing while disabled; else frees all. The first error, if any.
  Status clear() noexcept;
  [[nodiscard]] DeferCleanup disable() noexcept;
  bool is_disabled() const noexcept;

  void set_memory_capacity(std::uint64_t bytes) noexcept;
  std::optional<std::uint64_t> memory_capacity() const noexcept;
  void set_limits(Limits limits) noexcept;
  std::size_t size() const noexcept;
  std::uint64_t bytes() const noexcept;
  std::size_t failures() const noexcept;

 private:
  struct Item {
    Call dtor;
    std::uint64_t handle;
    std::optional<std::uint64_t> size;
  };
  Status destroy(const Item& item) noexcept;

  Driver& driver_;
  ManagerObserver* observer_;
  Profile profile_;
  mutable std::mutex mutex_;
  Limits limits_;
  std::deque<Item> items_;
  std::uint64_t bytes_ = 0;
  std::optional<std::uint64_t> capacity_;
  std::size_t disabled_ = 0;
  std::size_t failures_ = 0;
};

}  // namespace emm
