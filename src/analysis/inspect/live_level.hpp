#pragma once

#include <bit>
#include <cstdint>

#include "inspect/profile.hpp"

namespace emm::inspect {

/// The sum of what is live, and its peak.
struct LiveLevel {
  std::uint64_t bytes = 0, count = 0;
  Peak peak;
  void begin(std::uint64_t size) { bytes += size, ++count; }
  void end(std::uint64_t size) { bytes -= size, --count; }
  /// Returns true if the level is higher than ever before.
  bool update_peak(std::uint32_t event) {
    if (bytes <= peak.bytes) return false;
    peak = {.bytes = bytes, .count = count, .event = event};
    return true;
  }
};

/// Returns the SizeClass::from of a size.
inline std::uint64_t class_of(std::uint64_t size) { return size == 0 ? 0 : std::bit_floor(size); }

}  // namespace emm::inspect
