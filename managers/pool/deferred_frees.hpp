#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "driver/types.hpp"

namespace emm::pool {

/// A block whose free is event-deferred: it was freed on another stream, and may be handed out
/// again once the arena's stream waits for `event`.
struct DeferredFree {
  std::uint32_t block = 0;
  std::uint64_t bytes = 0;
  EventHandle event{};  ///< Only the first part of a stitched block has it; the other parts have 0.
  bool is_recorded =
      true;  ///< False if no event could be recorded: the arena then waits for the device.
  std::uint32_t slot = ~std::uint32_t{0};  ///< The plan's slot, if a plan placed the memory; then
                                           ///< there is no `block`.
  bool is_first = true;  ///< This is the first part of a stitched block, or an ordinary block.
};

/// The event-deferred frees of an arena, oldest first. Knows no driver: the arena waits for the
/// events. Guarded by the arena's lock.
class DeferredFrees {
 public:
  bool is_empty() const noexcept { return done_ == queue_.size(); }
  /// Bytes of the deferred blocks, and the number of frees that they belong to.
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t count() const noexcept { return count_; }

  void push(const DeferredFree& free) {
    queue_.push_back(free);
    bytes_ += free.bytes;
    if (free.is_first) ++count_;
  }
  std::size_t size() const noexcept { return queue_.size() - done_; }
  /// The oldest `most` blocks, or all.
  std::span<const DeferredFree> oldest(std::size_t most) const noexcept {
    return std::span(queue_).subspan(done_, std::min(most, size()));
  }
  /// Takes the oldest `count` blocks out of the queue, and calls visit(free) for each of them.
  template <class Visit>
  void pop(std::size_t count, Visit&& visit) {
    for (const auto end = done_ + count; done_ < end; ++done_) {
      const auto& free = queue_[done_];
      bytes_ -= free.bytes;
      if (free.is_first) --count_;
      visit(free);
    }
    // The front is erased only once it is half of the queue, so that each free is moved once at
    // most on average.
    if (2 * done_ < queue_.size()) return;
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(done_));
    done_ = 0;
  }
  std::uint64_t metadata_bytes() const noexcept { return queue_.capacity() * sizeof(DeferredFree); }

 private:
  std::vector<DeferredFree> queue_;
  std::size_t done_ = 0;  ///< The number of entries at the front of queue_ that have been popped.
  std::uint64_t bytes_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace emm::pool
