#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/byte_sum.hpp"

namespace emm::trace {

/// What an importer knows of an allocation that lives.
struct LiveAllocation {
  std::uint64_t id = 0;
  std::uint64_t size = 0;  ///< Bytes.
};

/// Addresses of a foreign file as allocations, across reuse: an address names whichever allocation
/// lives there, in the order of the rows, which must be that in which memory was given out (after)
/// and taken back (before). Memory is bounded by what is live.
class AddressBook {
 public:
  struct Located {
    std::uint64_t address = 0;
    LiveAllocation live;
  };

  /// False, and nothing done, where something lives at `address` already.
  bool add(std::uint64_t address, LiveAllocation entry) {
    if (!live_.emplace(address, entry).second) return false;
    bytes_.add(entry.size);
    return true;
  }
  /// Ends what lives at `address`; nothing where nothing does.
  std::optional<LiveAllocation> remove(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return std::nullopt;
    const auto entry = found->second;
    live_.erase(found);
    bytes_.subtract(entry.size);
    return entry;
  }
  bool has(std::uint64_t address) const { return live_.count(address) != 0; }
  /// The allocation that `address` lies in, or starts.
  std::optional<Located> containing(std::uint64_t address) const {
    auto after = live_.upper_bound(address);
    if (after == live_.begin()) return std::nullopt;
    --after;
    const auto offset = address - after->first;
    if (offset != 0 && offset >= after->second.size) return std::nullopt;
    return Located{.address = after->first, .live = after->second};
  }
  void clear() {
    live_.clear();
    bytes_ = {};
  }

  std::uint64_t count() const noexcept { return live_.size(); }
  const ByteSum& bytes() const noexcept { return bytes_; }
  const std::map<std::uint64_t, LiveAllocation>& live() const noexcept { return live_; }

 private:
  std::map<std::uint64_t, LiveAllocation> live_;
  ByteSum bytes_;
};

}  // namespace emm::trace
