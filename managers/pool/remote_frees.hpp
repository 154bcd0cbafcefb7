#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/spin_lock.hpp"
#include "driver/types.hpp"

namespace emm::pool {

/// A free that is still to be made. If the program freed the memory on another stream than its own,
/// `event` was recorded there at that moment (0 if that failed).
struct PendingFree {
  std::uint64_t cookie = 0;
  bool on_other_stream = false;
  EventHandle event{};
};

/// The remote-free queue of an arena: frees by threads that do not hold its lock. The arena makes
/// these frees before it looks for memory.
///
/// Any thread may push; the thread that takes must hold the arena's lock. The first few frees lie
/// in one cache line. While the queue is empty the arena only reads that line, so a warm allocation
/// does not wait for another core.
class RemoteFrees {
 public:
  void push(const PendingFree& free) noexcept {
    const std::lock_guard lock(line_.lock);
    if (free.on_other_stream || line_.count == line_.cookies.size()) {
      overflow_.push_back(free);
      line_.has_overflow = true;
    } else {
      line_.cookies[line_.count++] = free.cookie;
    }
    line_.is_filled.store(true, std::memory_order_relaxed);
  }
  /// May lag behind another thread's push(). A caller that must not miss a free uses take_all().
  bool seems_empty() const noexcept { return !line_.is_filled.load(std::memory_order_relaxed); }
  /// Empties the queue. The result is valid until the next call.
  std::span<const PendingFree> take_all() noexcept {
    taken_.clear();
    const std::lock_guard lock(line_.lock);
    if (line_.has_overflow) std::swap(overflow_, taken_);
    for (std::size_t at = 0; at < line_.count; ++at)
      taken_.push_back({.cookie = line_.cookies[at]});
    line_.count = 0;
    line_.has_overflow = false;
    // Stored under the lock, so that a later push() raises it again.
    line_.is_filled.store(false, std::memory_order_relaxed);
    return taken_;
  }
  /// Bytes of the host's memory. REQUIRES: the arena's lock.
  std::uint64_t metadata_bytes() const noexcept { return taken_.capacity() * sizeof(PendingFree); }

 private:
  struct alignas(64) Line {
    SpinLock lock;
    std::atomic<bool> is_filled{false};
    std::uint8_t count = 0;
    bool has_overflow = false;
    std::array<std::uint64_t, 7> cookies{};
  };
  static_assert(sizeof(Line) == 64);

  Line line_;
  std::vector<PendingFree> overflow_;  ///< Guarded by line_.lock, like the line.
  std::vector<PendingFree> taken_;     ///< Guarded by the arena's lock.
};

}  // namespace emm::pool
