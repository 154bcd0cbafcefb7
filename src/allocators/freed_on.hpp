#pragma once

#include <cstdint>
#include <map>

#include "allocators/device_memory.hpp"

namespace emm::allocators {

/// Which streams have freed into a list, and how far those that take from it have waited for them.
/// Pools that leave the order to the program have no such thing; a manager may not leave it.
class FreedOn {
 public:
  void note(std::uint64_t list, std::uint64_t stream, std::uint64_t asked_on,
            DeviceMemory& memory) {
    memory.freed(stream, asked_on);
    lists_[list][stream].last = ++frees_;
  }
  /// `stream` takes from the list.
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
    std::map<std::uint64_t, std::uint64_t> seen{};  // by the stream that waited
  };
  std::map<std::uint64_t, std::map<std::uint64_t, Freed>> lists_;
  std::uint64_t frees_ = 0;
};

}  // namespace emm::allocators
