#pragma once

#include <cstdint>
#include <vector>

#include "driver/types.hpp"

namespace emm::pool {

/// An allocation that consists of several blocks of the map, mapped one behind the other at
/// `address`.
struct StitchedBlock {
  DevicePtr address{};
  std::uint64_t requested = 0;
  std::vector<std::uint32_t> parts{};  ///< The blocks. Empty if the entry is unused.
};

/// The stitched blocks of an arena by index. Indexes are reused, and so is the memory of `parts`.
class StitchedBlocks {
 public:
  /// Returns the index of a stitched block without parts.
  std::uint32_t add() {
    if (unused_.empty()) {
      blocks_.emplace_back();
      return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const auto index = unused_.back();
    unused_.pop_back();
    return index;
  }
  StitchedBlock& operator[](std::uint32_t index) noexcept { return blocks_[index]; }
  const std::vector<StitchedBlock>& all() const noexcept { return blocks_; }
  void erase(std::uint32_t index) {
    blocks_[index].parts.clear();
    unused_.push_back(index);
  }
  void clear() noexcept {
    blocks_.clear();
    unused_.clear();
  }
  std::uint64_t metadata_bytes() const noexcept {
    auto sum =
        blocks_.capacity() * sizeof(StitchedBlock) + unused_.capacity() * sizeof(std::uint32_t);
    for (const auto& block : blocks_) sum += block.parts.capacity() * sizeof(std::uint32_t);
    return sum;
  }

 private:
  std::vector<StitchedBlock> blocks_;
  std::vector<std::uint32_t> unused_;
};

}  // namespace emm::pool
