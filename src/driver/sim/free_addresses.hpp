#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace emm::sim {

/// Says which addresses are free. Takes from the smallest free range that fits, the lowest of
/// these, in time logarithmic in the number of ranges. One thread at a time.
class FreeAddresses {
 public:
  /// Makes [at, at + size) free, which it was not. Neighbours become one range.
  void release(std::uint64_t at, std::uint64_t size);
  /// Takes `size` bytes at a multiple of `alignment`, a power of two, and answers where. Nothing
  /// where no range is large enough whatever its address.
  std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t alignment = 1);
  /// Takes that range. False where it is not free.
  bool take_at(std::uint64_t at, std::uint64_t size);

 private:
  void take_from(std::uint64_t range, std::uint64_t at, std::uint64_t size);

  std::map<std::uint64_t, std::uint64_t> free_;                // address, size; no two touch
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // the same: size, address
};

}  // namespace emm::sim
