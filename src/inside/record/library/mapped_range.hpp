#pragma once

#include <cstdint>

#include "record/library/recorder.hpp"

namespace emm::record {

/// The device's page size, which no mapping is smaller than.
inline constexpr std::uint64_t kDevicePageBytes = std::uint64_t{2} << 20;

/// Calls the end function for each mapping in a range, which may hold several mappings and holes.
/// Does nothing when the range ends inside a mapping or exceeds the address space, because the
/// driver refuses such an unmap. `size_at(address)` returns the size of the mapping that begins
/// there, or 0.
template <class SizeAt, class End>
void end_mappings(std::uint64_t begin, std::uint64_t size, SizeAt size_at, End end) noexcept {
  if (size > kAddresses) return;
  const auto walk = [&](auto&& act) {
    for (std::uint64_t at = 0; at < size;) {
      const auto mapped = size_at(begin + at);
      const auto extent = mapped != 0 ? mapped : kDevicePageBytes;
      if (mapped != 0) act(begin + at, extent <= size - at);
      if (extent > size - at) return;
      at += extent;
    }
  };
  bool are_whole = true;
  walk([&](std::uint64_t, bool is_whole) { are_whole = are_whole && is_whole; });
  if (are_whole) walk([&](std::uint64_t address, bool) { end(address); });
}

}  // namespace emm::record
