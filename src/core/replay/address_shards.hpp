#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/spin_lock.hpp"
#include "replay/address_map.hpp"
#include "replay/live_set.hpp"

namespace emm::replay {

/// An AddressMap for many threads. The address space is cut into windows, and each window belongs
/// to one of many maps. A range across several windows is in several maps.
///
/// The number of a range is an AllocId. A range whose id has ended in the LiveSet overlaps nothing,
/// so it may be erased late. An insertion that meets such a range erases it.
class AddressShards {
 public:
  /// `live` must outlive this.
  explicit AddressShards(const LiveSet& live) noexcept : live_(live) {}

  /// Like AddressMap::insert(). Of two overlapping ranges that threads insert at the same time, one
  /// is added.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size,
                                      std::uint32_t number);
  /// Erases what is left of a range that insert() added.
  void erase(std::uint64_t begin, std::uint64_t size, std::uint32_t number);

 private:
  /// 256 MiB: a smaller allocation lies in one window or two, and takes as many locks.
  static constexpr unsigned kWindowBits = 28;
  /// Neighbouring windows have different maps. Distant parts of the address space share no map, so
  /// that a thread with memory in one part has its maps' cache lines for itself.
  static constexpr unsigned kPartBits = 46 - kWindowBits;
  static constexpr std::size_t kParts = 64, kShardsOfPart = 64;
  struct alignas(128) Shard {
    SpinLock mutex;
    AddressMap map;
  };
  Shard& shard_of(std::uint64_t window) noexcept {
    return shards_[(window >> kPartBits) % kParts * kShardsOfPart + window % kShardsOfPart];
  }
  /// Calls `each` with the range's part in each window until it returns false. Returns the start of
  /// the last part.
  template <class Each>
  std::uint64_t for_each_part(std::uint64_t begin, std::uint64_t size, Each each);

  const LiveSet& live_;
  std::array<Shard, kParts * kShardsOfPart> shards_;
};

}  // namespace emm::replay
