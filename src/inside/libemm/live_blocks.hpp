#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::libemm {

/// Memory that a framework holds.
struct LiveBlock {
  /// What only memory of a recording, of a graph, or of several streams has.
  struct Rest {
    std::uint64_t capacity = 0;  ///< At least `size`: memory from a private pool may be larger.
    std::uint64_t number = 0;    ///< Its id in the recording; 0 if it is older than the recording.
    std::uint64_t pool = 0;      ///< The private pool; 0 if none.
    std::vector<StreamHandle> others;
  };

  Lifetime lifetime;
  std::uint64_t size = 0;  ///< As requested.
  StreamHandle stream;
  std::unique_ptr<Rest> rest;  ///< Null for most.

  Rest& with_rest() {
    if (rest == nullptr) rest = std::make_unique<Rest>();
    return *rest;
  }
};

/// Live blocks by address, and the sum of their sizes. One thread at a time.
///
/// The addresses are a hash table with linear probing, at most half full. The blocks are apart, and
/// the one that was erased last is used next, so that few cache lines are touched.
class LiveBlocks {
 public:
  static constexpr std::uint64_t hash(std::uint64_t address) noexcept {
    // Allocators align to 256 bytes. The upper bits of the product depend on all bits of the rest.
    return (address >> 8) * 0x9e3779b97f4a7c15u;
  }

  /// Null if no block begins at `address`.
  LiveBlock* find(std::uint64_t address) noexcept {
    const auto at = place_of(address);
    return at != kNowhere ? &blocks_[places_[at].block] : nullptr;
  }
  /// Returns the block that was there before, if any: its memory went without a free. If the host
  /// has no memory, this throws std::bad_alloc and leaves the block as it was.
  std::optional<LiveBlock> insert(std::uint64_t address, LiveBlock&& block) {
    if (2 * (count_ + 1) > places_.size()) [[unlikely]]
      grow();
    auto at = home_of(address);
    while (places_[at].address != kNone && places_[at].address != address) at = (at + 1) & mask_;
    set_bytes(bytes() + block.size);
    if (places_[at].address == address) [[unlikely]]
      return replace(blocks_[places_[at].block], std::move(block));
    places_[at] = {.address = address, .block = idle_[count_]};
    std::construct_at(&blocks_[idle_[count_++]], std::move(block));
    return {};
  }
  /// Moves the block that begins at `address` to `into`, which owns nothing yet. False if there is
  /// none, or if not `may(block)`.
  template <class May>
  bool take(std::uint64_t address, LiveBlock& into, const May& may) {
    const auto at = place_of(address);
    if (at == kNowhere || !may(std::as_const(blocks_[places_[at].block]))) [[unlikely]]
      return false;
    auto& block = blocks_[places_[at].block];
    set_bytes(bytes() - block.size);
    idle_[--count_] = places_[at].block;
    close_gap(at);
    std::construct_at(&into, std::move(block));
    return true;
  }

  /// Any thread may ask.
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  bool empty() const noexcept { return count_ == 0; }
  /// Calls visit(address, block), in no order.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (const auto& place : places_) {
      if (place.address != kNone) visit(place.address, blocks_[place.block]);
    }
  }

 private:
  static constexpr std::uint64_t kNone = 0;  ///< No memory begins there.
  static constexpr auto kNowhere = std::numeric_limits<std::size_t>::max();
  struct Place {
    std::uint64_t address = kNone;
    std::uint32_t block = 0;  ///< Index in blocks_.
  };

  // The shards of AddressedMemory are chosen by the upper 4 bits.
  std::size_t home_of(std::uint64_t address) const noexcept {
    return static_cast<std::size_t>(hash(address) >> 28) & mask_;
  }
  std::size_t place_of(std::uint64_t address) const noexcept {
    if (places_.empty()) [[unlikely]]
      return kNowhere;
    for (auto at = home_of(address);; at = (at + 1) & mask_) {
      if (places_[at].address == kNone) return kNowhere;
      if (places_[at].address == address) return at;
    }
  }
  // The blocks behind the gap move up, as long as that does not bring one before its home.
  void close_gap(std::size_t gap) noexcept {
    for (auto at = (gap + 1) & mask_; places_[at].address != kNone; at = (at + 1) & mask_) {
      const auto from_home = (at - home_of(places_[at].address)) & mask_;
      if (from_home < ((at - gap) & mask_)) continue;
      places_[gap] = places_[at];
      gap = at;
    }
    places_[gap].address = kNone;
  }
  std::optional<LiveBlock> replace(LiveBlock& former, LiveBlock&& block);
  void grow();
  void set_bytes(std::uint64_t bytes) noexcept { bytes_.store(bytes, std::memory_order_relaxed); }

  std::vector<Place> places_;  ///< As many as a power of two, or none.
  std::size_t mask_ = 0;
  std::vector<LiveBlock> blocks_;  ///< Half as many.
  std::vector<std::uint32_t>
      idle_;  ///< Numbers in blocks_. The first count_ are in use, so that these entries are stale.
  std::size_t count_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace emm::libemm
