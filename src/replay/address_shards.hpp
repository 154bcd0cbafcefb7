#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "replay/address_map.hpp"
#include "replay/live_set.hpp"
#include "replay/spin.hpp"

namespace emm::replay {

/// An AddressMap that many threads use at once. The address space is cut into windows, and each
/// window belongs to one of many maps; a range that lies in several windows is in several maps.
///
/// The number of a range is an AllocId. A range whose id has ended in the LiveSet overlaps nothing,
/// so it may be erased late; an insertion that meets it erases it.
class AddressShards {
 public:
  /// `live` outlives this.
  explicit AddressShards(const LiveSet& live) noexcept : live_(live) {}

  /// As AddressMap::insert. Of two that overlap and are inserted at once, one is taken in.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size,
                                      std::uint32_t number);
  /// Erases what is left of a range that insert() took in.
  void erase(std::uint64_t begin, std::uint64_t size, std::uint32_t number);

 private:
  static constexpr unsigned kWindowBits = 28;
  /// Windows that are neighbours have different maps. Far parts of the address space share none, so
  /// that a thread whose memory is in one of them has its maps' lines for itself.
  static constexpr unsigned kPartBits = 46 - kWindowBits;
  static constexpr std::size_t kParts = 64, kShardsOfPart = 64;
  struct alignas(128) Shard {
    SpinLock mutex;
    AddressMap map;
  };
  Shard& shard_of(std::uint64_t window) noexcept {
    return shards_[(window >> kPartBits) % kParts * kShardsOfPart + window % kShardsOfPart];
  }
  /// Calls `each` with the part in each window, until it answers false; returns the address
  /// reached.
  template <class Each>
  std::uint64_t for_each_part(std::uint64_t begin, std::uint64_t size, Each each);

  const LiveSet& live_;
  std::array<Shard, kParts * kShardsOfPart> shards_;
};

}  // namespace emm::replay
