#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace emm::sim {

/// Gives the system the pages of a table back.
struct Unmapped {
  std::size_t bytes = 0;
  void operator()(void* table) const noexcept;
};

/// Says which pages of an address space are free. Finds the lowest run of free pages that is long
/// enough, in time logarithmic in the number of pages. It touches memory only where pages have been
/// taken. One thread at a time.
class PageTree {
 public:
  /// All free. `pages` is rounded up to a power of two. REQUIRES: 0 < pages <= 2^30.
  explicit PageTree(std::uint32_t pages);

  /// First page of the lowest run of `count` free pages. REQUIRES: count > 0.
  std::optional<std::uint32_t> find(std::uint32_t count) const noexcept;
  void take(std::uint32_t first, std::uint32_t count) noexcept {
    assign(1, 0, pages_, {first, count, false});
  }
  void release(std::uint32_t first, std::uint32_t count) noexcept {
    assign(1, 0, pages_, {first, count, true});
  }
  std::uint32_t longest() const noexcept { return pages_ - nodes_[1].longest; }

 private:
  /// How many pages the free runs of a subtree (at its start, at its end, the longest) are shorter
  /// than the subtree. All zero means "all free", so that zeroed memory is a valid tree, and the
  /// tree of an empty device takes no memory. A node that is all free or all taken does not keep
  /// its children up to date; assign() writes them when it splits the node.
  struct Node {
    std::uint32_t prefix, suffix, longest;
  };
  struct Change {
    std::uint32_t first, count;
    bool free;
  };

  void assign(std::uint32_t node, std::uint32_t begin, std::uint32_t length,
              const Change& change) noexcept;
  void merge(std::uint32_t node, std::uint32_t length) noexcept;

  std::uint32_t pages_;
  std::unique_ptr<Node[], Unmapped>
      nodes_;  // node 1 is the root; the children of n are 2n and 2n+1
};

/// A value for each page, 0 at first. Finds the lowest page whose value is at least a given one, at
/// the same cost.
class MaxTree {
 public:
  explicit MaxTree(std::uint32_t pages);
  std::optional<std::uint32_t> find(std::uint16_t at_least) const noexcept;
  void set(std::uint32_t page, std::uint16_t value) noexcept;
  std::uint16_t max() const noexcept { return values_[1]; }

 private:
  std::uint32_t pages_;
  std::unique_ptr<std::uint16_t[], Unmapped> values_;
};

}  // namespace emm::sim
