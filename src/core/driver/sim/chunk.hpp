#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace emm::sim {

/// A 2 MiB page that small allocations share, in units of 512 bytes. Each allocation takes the
/// lowest free range that is long enough. (Measured on an H200: sizes up to 1 MiB share 2 MiB
/// chunks at 512-byte steps.) One thread at a time.
class Chunk {
 public:
  static constexpr std::uint64_t kUnitBytes = 512;  // cuMemAlloc's alignment on an H200
  static constexpr std::uint32_t kUnits = 4096;     // 2 MiB: a page

  Chunk() : free_{{0, kUnits}} {}

  /// Takes units and returns the first. REQUIRES: 0 < units <= longest().
  std::uint32_t take(std::uint32_t units);
  /// REQUIRES: take(units) returned `first`.
  void release(std::uint32_t first, std::uint32_t units);

  std::uint16_t longest() const noexcept { return longest_; }
  bool empty() const noexcept { return longest_ == kUnits; }
  /// First unit of the nearest block that begins at or below `unit`; kUnits if there is none.
  std::uint32_t begin_at_or_below(std::uint32_t unit) const noexcept;

 private:
  struct FreeUnits {
    std::uint16_t first, units;
  };
  void find_longest() noexcept;

  std::uint16_t longest_ = kUnits;
  std::vector<FreeUnits> free_;                      // by address, no two touch
  std::array<std::uint64_t, kUnits / 64> begins_{};  // one bit for each unit: a block begins here
};

}  // namespace emm::sim
