#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "driver/sim/chunk.hpp"
#include "driver/sim/content.hpp"
#include "driver/sim/page_tree.hpp"

namespace emm::sim {

inline constexpr std::uint64_t kPageBytes = 2u << 20;
inline constexpr std::uint64_t kLargestShared = 1u
                                                << 20;  ///< Larger allocations do not share pages.

/// The memory of one device. Decides which address and how many physical pages an allocation gets.
///
/// Sizes up to 1 MiB share 2 MiB pages at steps of 512 bytes; a larger allocation takes whole
/// pages. (Measured on an H200 with cuMemGetInfo: 1,048,576 bytes take 2 MiB, and so do 1,048,577;
/// 3 MiB take 4 MiB.) Each gets the lowest address where it fits, and a small one uses shared pages
/// before it takes another page, so that the same calls give the same addresses. An allocation may
/// use any free physical pages, so physical memory does not fragment. One thread at a time.
class DeviceMemory {
 public:
  struct DeviceBlock {
    std::uint64_t size = 0;
    std::unique_ptr<Content> content;  ///< Null until something is written.
  };
  struct Found {
    std::uint64_t base = 0;
    DeviceBlock* block = nullptr;  ///< Null if there is none.
  };

  /// `pages` physical pages at addresses from `base`, which is a multiple of the page size.
  DeviceMemory(std::uint64_t base, std::uint32_t pages);

  /// Returns the address, or 0 if there is no room. REQUIRES: size > 0.
  std::uint64_t allocate(std::uint64_t size);
  /// Returns the freed size; 0 if no allocation begins at `address`.
  std::uint64_t free(std::uint64_t address);
  /// Takes physical pages without addresses. False if there are not enough.
  bool take_unplaced(std::uint64_t pages) noexcept;
  void release_unplaced(std::uint64_t pages) noexcept {
    taken_ -= static_cast<std::uint32_t>(pages);
  }
  /// Finds the allocation that contains `address`.
  Found find(std::uint64_t address) noexcept;
  void clear();

  std::uint64_t held_bytes() const noexcept { return std::uint64_t{taken_} * kPageBytes; }
  std::uint64_t free_bytes() const noexcept { return std::uint64_t{pages_ - taken_} * kPageBytes; }
  /// The largest size that allocate() could serve now.
  std::uint64_t largest_free_bytes() const noexcept;

  const std::unordered_map<std::uint64_t, DeviceBlock>& blocks() const noexcept { return blocks_; }

 private:
  std::uint64_t address_of(std::uint32_t page) const noexcept { return base_ + page * kPageBytes; }
  std::uint64_t take_pages(std::uint32_t count);
  void release_pages(std::uint32_t first, std::uint32_t count);
  void mark(std::uint32_t page, bool begins);

  std::uint64_t base_;
  std::uint32_t pages_;
  std::uint32_t taken_ = 0;
  PageTree tree_;
  MaxTree longest_free_;                        // by page, in a Chunk's units
  std::vector<std::unique_ptr<Chunk>> chunks_;  // by page; null if the page is not shared
  std::vector<std::uint64_t>
      begins_;  // one bit for each page: a chunk or a large allocation begins here
  std::unordered_map<std::uint64_t, DeviceBlock> blocks_;
};

}  // namespace emm::sim
