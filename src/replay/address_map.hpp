#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace emm::replay {

/// Disjoint ranges of addresses, each with a number: the memory that is live on one device.
///
/// A sorted list of sorted leaves, each a few cache lines: with a thousand ranges an insertion is a
/// search in two short arrays and a move within one.
class AddressMap {
 public:
  /// Takes [begin, begin + size) in, unless it overlaps a range that is here. Returns the number of
  /// that range then, and its begin in `*other_begin`. REQUIRES: size > 0.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size, std::uint32_t number,
                                      std::uint64_t* other_begin = nullptr);
  /// REQUIRES: a range that insert() took in begins at `begin`.
  void erase(std::uint64_t begin);
  /// Returns false where no range of that number begins there.
  bool erase(std::uint64_t begin, std::uint32_t number);
  std::optional<std::uint32_t> find(
      std::uint64_t begin) const noexcept;  ///< The range that begins there.
  std::size_t size() const noexcept { return size_; }
  void clear() noexcept;

 private:
  static constexpr std::size_t kLeafSize = 64;
  struct Leaf {
    std::size_t count = 0;
    std::uint64_t begin[kLeafSize];
    std::uint64_t last[kLeafSize];  ///< The last address of the range: the end of one may be 2^64.
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
