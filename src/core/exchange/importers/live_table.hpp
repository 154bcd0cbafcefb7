#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/byte_sum.hpp"
#include "exchange/importers/address_book.hpp"
#include "exchange/importers/address_table.hpp"

namespace emm::trace {

/// Live allocations by address, for files of millions of rows. As AddressBook, without order.
class LiveTable {
 public:
  /// Adds an allocation. If `address` is taken, does nothing and returns false.
  bool add(std::uint64_t address, LiveAllocation entry) {
    if (!live_.add(address, entry).second) return false;
    bytes_.add(entry.size);
    return true;
  }
  /// Removes and returns the allocation at `address`; nothing if there is none.
  std::optional<LiveAllocation> remove(std::uint64_t address) {
    const auto ended = live_.remove(address);
    if (ended) bytes_.subtract(ended->size);
    return ended;
  }
  /// All live allocations in the order of their ids.
  std::vector<LiveAllocation> all() const {
    std::vector<LiveAllocation> entries;
    live_.for_each([&](std::uint64_t, const LiveAllocation& entry) { entries.push_back(entry); });
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    return entries;
  }
  bool has(std::uint64_t address) const noexcept { return live_.find(address) != nullptr; }

  std::uint64_t count() const noexcept { return live_.count(); }
  const ByteSum& bytes() const noexcept { return bytes_; }

 private:
  AddressTable<LiveAllocation> live_;
  ByteSum bytes_;
};

}  // namespace emm::trace
