#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/byte_sum.hpp"

namespace emm::trace {

/// A live allocation, as an importer knows it.
struct LiveAllocation {
  std::uint64_t id = 0;
  std::uint64_t size = 0;  ///< Bytes.
};

/// Maps the addresses of a foreign file to allocations across reuse: an address names the
/// allocation that is live there. Rows must come in the order in which memory was given out (after
/// the call) and taken back (before the call). Memory is bounded by what is live.
class AddressBook {
 public:
  struct Located {
    std::uint64_t address = 0;
    LiveAllocation live;
  };

  /// Adds an allocation. If `address` is taken, does nothing and returns false.
  bool add(std::uint64_t address, LiveAllocation entry) {
    if (!live_.emplace(address, entry).second) return false;
    bytes_.add(entry.size);
    return true;
  }
  /// Removes and returns the allocation at `address`; nothing if there is none.
  std::optional<LiveAllocation> remove(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return std::nullopt;
    const auto entry = found->second;
    live_.erase(found);
    bytes_.subtract(entry.size);
    return entry;
  }
  bool has(std::uint64_t address) const { return live_.count(address) != 0; }
  /// Finds the allocation that contains `address` or begins there.
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
