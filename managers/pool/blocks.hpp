#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace emm::pool {

/// An index that names nothing.
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// The block map of one arena: extents of addresses cut into blocks, near best fit, free neighbours
/// joined at once. Knows no driver and no stream. Sizes are in granules, addresses in bytes. 32
/// bytes a block, reused for ever; a call that needs no more blocks than there have been takes
/// nothing from the heap.
///
/// A free block is in the list of its size class (32 to an octave, exact below 32 granules). One
/// thread at a time.
class Blocks {
 public:
  enum class State : std::uint32_t { absent, used, free, parked };

  /// Granules are of 2^`shift` bytes.
  explicit Blocks(unsigned shift) noexcept : shift_(shift) { heads_.fill(kNone); }

  std::uint32_t granules(std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>((bytes + ((std::uint64_t{1} << shift_) - 1)) >> shift_);
  }
  std::uint64_t bytes(std::uint32_t granules) const noexcept {
    return std::uint64_t{granules} << shift_;
  }
  /// What one block can hold at most, in bytes.
  std::uint64_t largest() const noexcept { return std::uint64_t{kMostGranules} << shift_; }

  /// A block of exactly `granules` > 0 out of the smallest that is found to fit; kNone where there
  /// is none.
  std::uint32_t take(std::uint32_t granules);
  /// The part [address, address + granules) of a free block, used. REQUIRES: it lies in that block.
  std::uint32_t carve(std::uint32_t block, std::uint64_t address, std::uint32_t granules);
  /// A used or parked block is free, and joined with free neighbours.
  void release(std::uint32_t block) noexcept;
  /// A used block stays out of reach, but is used no more.
  void park(std::uint32_t block) noexcept { set_state(blocks_[block], State::parked); }

  /// New free addresses: `joined` to the end of those that were added last, which they follow, or
  /// by themselves.
  void extend(bool joined, std::uint64_t address, std::uint32_t granules);
  /// The block at the end of what was added last; kNone where that has been removed.
  std::uint32_t last() const noexcept { return last_; }
  /// Takes a free block out of the map. Blocks below and above it are not joined across the gap.
  void remove(std::uint32_t block) noexcept;
  /// Cuts a free block so that one starts at `address`, which lies in it; that one.
  std::uint32_t cut(std::uint32_t block, std::uint64_t address);
  /// Takes every free block out of the map.
  void remove_all_free() noexcept;
  /// Takes every block out of the map: all uses are over.
  void clear() noexcept;

  /// Names this use of the block: no other use of any block has the same. `block` is used.
  std::uint64_t cookie(std::uint32_t block) const noexcept {
    return (std::uint64_t{blocks_[block].tag} << 32) | block;
  }
  /// The used block that `cookie` names; kNone where that use is over.
  std::uint32_t find(std::uint64_t cookie) const noexcept {
    const auto block = static_cast<std::uint32_t>(cookie);
    return block < blocks_.size() && blocks_[block].tag == cookie >> 32 ? block : kNone;
  }

  State state(std::uint32_t block) const noexcept { return State(blocks_[block].tag & 3); }
  std::uint64_t address(std::uint32_t block) const noexcept { return blocks_[block].address; }
  std::uint32_t size(std::uint32_t block) const noexcept { return blocks_[block].size; }
  std::uint32_t before(std::uint32_t block) const noexcept { return blocks_[block].before; }
  std::uint32_t after(std::uint32_t block) const noexcept { return blocks_[block].after; }
  /// What the owner keeps with a used or parked block.
  std::uint64_t& note(std::uint32_t block) noexcept { return blocks_[block].note; }
  std::uint64_t note(std::uint32_t block) const noexcept { return blocks_[block].note; }

  /// How many slots of blocks there are, used or not: for who walks all.
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint64_t metadata_bytes() const noexcept {
    return blocks_.capacity() * sizeof(Block) + sizeof *this;
  }
  /// Of the largest free block, in granules, or 0.
  std::uint32_t largest_free() const noexcept;
  /// Calls visit(block) for every free block of at least `granules`, the larger classes first.
  template <class Visit>
  void for_each_free(std::uint32_t granules, Visit&& visit) const {
    const auto least = class_of(granules);
    for (auto bin = kClasses; bin-- > least;) {
      if (heads_[bin] == kNone) continue;
      for (auto at = heads_[bin]; at != kNone; at = above(blocks_[at])) {
        if (blocks_[at].size >= granules) visit(at);
      }
    }
  }

 private:
  struct Block {
    std::uint64_t address = 0;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;  ///< The number of its uses times 4, and its State.
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
    std::uint64_t note =
        0;  ///< Of a free one: its neighbours in the list; of an absent one: the next absent one.
  };
  static_assert(sizeof(Block) == 32);

  static constexpr unsigned kFine = 5;  ///< 2^5 classes to an octave
  static constexpr std::uint32_t kMostGranules = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kClasses = (32 - kFine + 1) << kFine;

  static std::uint32_t class_of(std::uint32_t granules) noexcept {
    if (granules < (1u << kFine)) return granules;
    const auto exponent = static_cast<unsigned>(std::bit_width(granules)) - 1;
    return ((exponent - kFine + 1) << kFine) +
           ((granules >> (exponent - kFine)) & ((1u << kFine) - 1));
  }
  static std::uint32_t below(const Block& block) noexcept {
    return static_cast<std::uint32_t>(block.note >> 32);
  }
  static std::uint32_t above(const Block& block) noexcept {
    return static_cast<std::uint32_t>(block.note);
  }
  static void link(Block& block, std::uint32_t below, std::uint32_t above) noexcept {
    block.note = (std::uint64_t{below} << 32) | above;
  }
  static void set_state(Block& block, State state) noexcept {
    block.tag = (block.tag & ~3u) | static_cast<std::uint32_t>(state);
  }
  bool is_free(std::uint32_t block) const noexcept {
    return block != kNone && state(block) == State::free;
  }

  std::uint32_t make();
  void drop(std::uint32_t block) noexcept;
  void insert(std::uint32_t block) noexcept;
  void erase(std::uint32_t block) noexcept;
  void use(std::uint32_t block) noexcept;
  void resize(std::uint32_t block, std::uint32_t granules) noexcept;
  std::uint32_t split(std::uint32_t block, std::uint32_t granules);
  std::uint32_t best_of(std::uint32_t bin, std::uint32_t granules) const noexcept;
  std::uint32_t next_bin(std::uint32_t bin) const noexcept;

  unsigned shift_;
  std::uint32_t absent_ = kNone;
  std::uint32_t last_ = kNone;
  std::vector<Block> blocks_;
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_{};
  std::array<std::uint32_t, kClasses> heads_{};
};

}  // namespace emm::pool
