#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "replay/address_map.hpp"

namespace emm::replay {

/// An AddressMap that many threads use at once: the address space in windows, each in the care of
/// one of many maps. A range that lies in several windows is in several maps.
class AddressShards {
 public:
  /// As AddressMap::insert. Of two that overlap and come at once, one is taken in.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size,
                                      std::uint32_t number);
  /// REQUIRES: insert() took this in.
  void erase(std::uint64_t begin, std::uint64_t size);

 private:
  static constexpr unsigned kWindowBits = 28;
  static constexpr std::size_t kShards = 1024;
  struct alignas(64) Shard {
    std::mutex mutex;
    AddressMap map;
  };
  Shard& shard_of(std::uint64_t window) noexcept {
    return shards_[static_cast<std::size_t>((window * 0x9e3779b97f4a7c15u) >> 54)];
  }
  /// Calls `each` with the part in each window, until it answers false; returns the address
  /// reached.
  template <class Each>
  std::uint64_t for_each_part(std::uint64_t begin, std::uint64_t size, Each each);

  std::array<Shard, kShards> shards_;
};

}  // namespace emm::replay
