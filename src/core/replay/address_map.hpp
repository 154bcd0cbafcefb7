#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace emm::replay {

/// The live memory of one device: disjoint ranges of addresses, each with a number.
///
/// A sorted list of sorted leaves of a few cache lines each. With a thousand ranges, an insertion
/// searches two short arrays and moves elements in one.
class AddressMap {
 public:
  /// Adds [begin, begin + size) unless it overlaps a range in the map. Then returns that range's
  /// number, and its begin in `*other_begin`. REQUIRES: size > 0.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size, std::uint32_t number,
                                      std::uint64_t* other_begin = nullptr);
  /// REQUIRES: a range that insert() took in begins at `begin`.
  void erase(std::uint64_t begin);
  /// Returns false if no range with that number begins there.
  bool erase(std::uint64_t begin, std::uint32_t number);
  std::optional<std::uint32_t> find(
      std::uint64_t begin) const noexcept;  ///< The number of the range that begins at `begin`.
  std::size_t size() const noexcept { return size_; }
  void clear() noexcept;

 private:
  /// The begins of a leaf fill eight cache lines, and six halvings find one.
  static constexpr std::size_t kLeafSize = 64;
  struct Leaf {
    std::size_t count = 0;
    std::uint64_t begin[kLeafSize];
    std::uint64_t last[kLeafSize];  ///< The last address of each range, because an end may be 2^64.
    std::uint32_t number[kLeafSize];
  };

  std::size_t leaf_of(std::uint64_t begin) const noexcept;
  void erase_at(std::size_t leaf, std::size_t at);
  void put(std::size_t leaf, std::size_t at, std::uint64_t begin, std::uint64_t last,
           std::uint32_t number);

  std::vector<std::uint64_t> lows_;  ///< The first address of each leaf; 0 for the first.
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::size_t size_ = 0;
};

}  // namespace emm::replay
