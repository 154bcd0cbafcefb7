#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace emm::sim {

/// Which parts of a range of addresses are free. Takes the smallest hole that fits, the lowest of
/// these, in time logarithmic in the number of holes. One thread at a time.
class Holes {
 public:
  /// Makes [at, at + size) free, which it was not; neighbours become one hole.
  void give(std::uint64_t at, std::uint64_t size);
  /// Where `size` bytes were taken, at a multiple of `alignment`, a power of two; nothing where no
  /// hole is large enough for any address.
  std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t alignment = 1);
  /// False where that range is not free.
  bool take_at(std::uint64_t at, std::uint64_t size);

 private:
  void take_from(std::uint64_t hole, std::uint64_t at, std::uint64_t size);

  std::map<std::uint64_t, std::uint64_t> holes_;               // address, size; no two touch
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // the same: size, address
};

}  // namespace emm::sim
