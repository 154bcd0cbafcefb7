#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace emm {

/// The free addresses of a space. Takes from the smallest free range that fits, the lowest of equal
/// ones, in time logarithmic in the number of ranges. One thread at a time.
class FreeAddresses {
 public:
  /// Makes [at, at + size) free, and coalesces it with its neighbours. REQUIRES: it is not free.
  void release(std::uint64_t at, std::uint64_t size);
  /// Takes `size` bytes at a multiple of `alignment`, a power of two, and returns their address.
  /// Empty if no range is large enough for every alignment of its start.
  std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t alignment = 1);
  /// Takes this range. False if it is not free.
  bool take_at(std::uint64_t at, std::uint64_t size);
  /// Takes the end of the highest range that has `size` and `besides` bytes, in time linear in the
  /// number of ranges.
  std::optional<std::uint64_t> take_highest(std::uint64_t size, std::uint64_t besides);
  /// Takes whatever of [begin, end) is free.
  void remove(std::uint64_t begin, std::uint64_t end);
  /// By address: the size.
  const std::map<std::uint64_t, std::uint64_t>& ranges() const noexcept { return free_; }
  /// The size of the largest range; 0 if there is none.
  std::uint64_t longest() const noexcept { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void take_from(std::uint64_t range, std::uint64_t at, std::uint64_t size);

  std::map<std::uint64_t, std::uint64_t> free_;                // address, size; no two touch
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // the same: size, address
};

}  // namespace emm
