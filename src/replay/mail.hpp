#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "replay/address_shards.hpp"

namespace emm::replay {

/// Ranges that are over and still in their maps, on the way to the thread that made them: the lines
/// of the map are with that one, so it is left to it to erase them. Any thread may put.
class alignas(128) Mail {
 public:
  struct Gone {
    AddressShards* shards;
    std::uint64_t begin, size;
    std::uint32_t number;
  };

  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  /// Leaves `gone` empty.
  void put(std::vector<Gone>& gone) {
    {
      const std::lock_guard lock(mutex_);
      gone_.insert(gone_.end(), gone.begin(), gone.end());
      any_.store(true, std::memory_order_relaxed);
    }
    gone.clear();
  }
  /// REQUIRES: `taken` is empty.
  void take(std::vector<Gone>& taken) {
    const std::lock_guard lock(mutex_);
    taken.swap(gone_);
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<Gone> gone_;
};

}  // namespace emm::replay
