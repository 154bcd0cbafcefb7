#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "replay/address_map.hpp"
#include "replay/live_set.hpp"
#include "replay/spin.hpp"

namespace emm::replay {

/// An AddressMap that many threads use at once: the address space in windows, each in the care of
/// one of many maps. A range that lies in several windows is in several maps.
///
/// The number of a range is an AllocId. One that is over in the LiveSet overlaps nothing, so that
/// it may be erased late.
class AddressShards {
 public:
  /// `live` outlives this.
  explicit AddressShards(const LiveSet& live) noexcept : live_(live) {}

  /// As AddressMap::insert. Of two that overlap and come at once, one is taken in.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size,
                                      std::uint32_t number);
  /// Of a range that insert() took in: what is left of it.
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
