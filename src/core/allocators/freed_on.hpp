#pragma once

#include <cstdint>
#include <map>

#include "allocators/device_memory.hpp"

namespace emm::allocators {

/// Tracks which streams freed into a list, and up to which free each stream that takes from the
/// list has waited for them. Some pools leave this order to the program; a manager may not.
class FreedOn {
 public:
  void note(std::uint64_t list, std::uint64_t stream, std::uint64_t asked_on,
            DeviceMemory& memory) {
    memory.freed(stream, asked_on);
    lists_[list][stream].last = ++frees_;
  }
  /// Makes `stream`, which takes from the list, wait for the other streams that have freed into it.
  void wait(std::uint64_t list, std::uint64_t stream, DeviceMemory& memory) {
    const auto of = lists_.find(list);
    if (of == lists_.end()) return;
    for (auto& [other, freed] : of->second) {
      auto& seen = freed.seen[stream];
      if (other != stream && seen < freed.last) memory.order(stream, other);
      seen = freed.last;
    }
  }

 private:
  struct Freed {
    std::uint64_t last = 0;
    std::map<std::uint64_t, std::uint64_t> seen{};  // The last free waited for, by waiting stream.
  };
  std::map<std::uint64_t, std::map<std::uint64_t, Freed>> lists_;
  std::uint64_t frees_ = 0;
};

}  // namespace emm::allocators
