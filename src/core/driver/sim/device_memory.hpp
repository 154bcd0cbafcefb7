#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "driver/driver_layout.hpp"
#include "driver/sim/chunk.hpp"
#include "driver/sim/content.hpp"
#include "driver/sim/page_tree.hpp"

namespace emm::sim {

/// Where memory lies: `first_fit` at the lowest address where it fits; `driver` where an H200's
/// driver puts that of a program from its start (DriverLayout).
enum class Addresses : std::uint8_t { first_fit, driver };

inline constexpr std::uint64_t kPageBytes = 2u << 20;  // of an H200: cuMemGetAllocationGranularity
inline constexpr std::uint64_t kLargestShared = 1u
                                                << 20;  ///< Larger allocations do not share pages.

/// The memory of one device. Decides which address and how many physical pages an allocation gets.
///
/// Sizes up to 1 MiB share 2 MiB pages at steps of 512 bytes; a larger allocation takes whole
/// pages. (Measured on an H200 with cuMemGetInfo: 1,048,576 bytes take 2 MiB, and so do 1,048,577;
/// 3 MiB take 4 MiB.) A small allocation uses the first shared page that has room, at its lowest
/// address, before it takes another page. The same calls give the same addresses. An allocation may
/// use any free physical pages, so physical memory does not fragment. One thread at a time.
class DeviceMemory {
 public:
  // Bytes of addresses of one device; devices stand side by side.
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 43;

  struct DeviceBlock {
    std::uint64_t size = 0;
    std::unique_ptr<Content> content;  ///< Null until something is written.
  };
  struct Found {
    std::uint64_t base = 0;
    DeviceBlock* block = nullptr;  ///< Null if there is none.
  };

  /// `pages` physical pages at addresses from `base`, which is a multiple of the page size, to
  /// base + kAddresses.
  DeviceMemory(std::uint64_t base, std::uint32_t pages, Addresses addresses);

  /// Returns the address, or 0 if there is no room. REQUIRES: size > 0.
  std::uint64_t allocate(std::uint64_t size);
  /// Returns the freed size; 0 if no allocation begins at `address`.
  std::uint64_t free(std::uint64_t address);
  /// A library of CUDA's loads its kernels. Moves what the context keeps for kernels, the first
  /// time only, so that later allocations get the addresses that it had.
  void load_kernels();
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
  std::uint32_t page_of(std::uint64_t address) const noexcept {
    return static_cast<std::uint32_t>((address - base_) / kPageBytes);
  }
  std::optional<std::uint32_t> share_page();
  std::uint64_t take_pages(std::uint32_t count);
  void release_pages(std::uint64_t address, std::uint32_t count);
  void mark(std::uint32_t page, bool begins);

  std::uint64_t base_;
  std::uint32_t pages_;
  Addresses addresses_;
  std::uint32_t taken_ = 0;
  PageTree tree_;                           // what is free, by page, for `first_fit`
  DriverLayout layout_{kAddresses};         // or offsets from the base, for `driver`
  std::uint64_t for_kernels_ = kAddresses;  // what of it the context took first for kernels
  // Each shared page has a number, the lowest that is unused; unused ones have no chunk.
  struct SharedPage {
    std::uint64_t address = 0;
    std::unique_ptr<Chunk> chunk{};
  };
  std::vector<SharedPage> shared_;
  MaxTree longest_free_;  // by number, in a Chunk's units
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> unused_;
  std::unordered_map<std::uint32_t, std::uint32_t> number_of_;  // page, number
  std::vector<std::uint64_t>
      begins_;  // one bit for each page: a chunk or a large allocation begins here
  std::unordered_map<std::uint64_t, DeviceBlock> blocks_;
};

}  // namespace emm::sim
