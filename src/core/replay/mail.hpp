#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "replay/address_shards.hpp"

namespace emm::replay {

/// Ranges of freed memory, on their way to the thread that made it. That thread erases them from
/// the address maps, whose lines are in its cache. Any thread may put.
class alignas(128) Mail {
 public:
  struct Range {
    AddressShards* shards;
    std::uint64_t begin, size;
    std::uint32_t number;
  };

  /// Answers whether there may be ranges to take. It may miss a put() at the same time until the
  /// next call, because a range may be erased at any time (LiveSet::hide).
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  /// Adds `ranges`, and leaves them empty.
  void put(std::vector<Range>& ranges) {
    {
      const std::lock_guard lock(mutex_);
      ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
      any_.store(true, std::memory_order_relaxed);
    }
    ranges.clear();
  }
  /// REQUIRES: `taken` is empty.
  void take(std::vector<Range>& taken) {
    const std::lock_guard lock(mutex_);
    taken.swap(ranges_);
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<Range> ranges_;
};

}  // namespace emm::replay
