#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace emm::pool {

/// An index that names nothing.
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// The block map of one arena: extents of addresses cut into blocks, near best fit, free neighbours
/// joined at once, but for small ones that are kept whole. Knows no driver and no stream. Sizes are
/// in granules, addresses in bytes. 32 bytes a block, reused for ever; a call that needs no more
/// blocks than there have been takes nothing from the heap.
///
/// A free block is in the ring of its size class (32 to an octave, exact below 64 granules). One
/// thread at a time. What a request and a free come to is inlined into its caller: of a path of 30
/// ns the frames of its functions are a tenth.
class Blocks {
 public:
  /// aside: free, and kept whole.
  enum class State : std::uint32_t { aside, used, free, parked };

  /// Granules are of 2^`shift` bytes.
  explicit Blocks(unsigned shift);

  std::uint32_t granules(std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>((bytes + mask_) >> shift_);
  }
  /// As many whole granules, in bytes.
  std::uint64_t rounded(std::uint64_t bytes) const noexcept { return (bytes + mask_) & ~mask_; }
  std::uint64_t bytes(std::uint32_t granules) const noexcept {
    return std::uint64_t{granules} << shift_;
  }
  /// What one block can hold at most, in bytes.
  static std::uint64_t largest(unsigned shift) noexcept {
    return std::uint64_t{kMostGranules} << shift;
  }

  /// A block of exactly `granules` > 0 out of the smallest that is found to fit; kNone where there
  /// is none.
  std::uint32_t take(std::uint32_t granules);
  /// The same, where take() has found none, after a look at each hole of its class: kNone only
  /// where no hole is as large.
  std::uint32_t take_any(std::uint32_t granules);
  /// The part [address, address + granules) of a free block, used. REQUIRES: it lies in that block.
  std::uint32_t carve(std::uint32_t block, std::uint64_t address, std::uint32_t granules);
  /// A used or parked block is free, and joined with free neighbours; but the two of each small
  /// size that came last are kept whole for the next that are as large.
  void release(std::uint32_t block) noexcept;
  /// The small ones that are kept whole are joined too. False where there was none.
  bool join_kept() noexcept;
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
  /// The blocks that are made next get their numbers in order, so that the same calls get the same
  /// ones. REQUIRES: none is in the map.
  void renumber() noexcept;
  /// How many blocks there have been at one time.
  std::size_t count() const noexcept { return blocks_.size() - kFirst; }
  /// Takes every block out of the map: all uses are over.
  void clear() noexcept;

  /// Names this use of the block: no other use of any block has the same. `block` is used.
  std::uint64_t cookie(std::uint32_t block) const noexcept {
    return (std::uint64_t{blocks_[block].tag} << 32) | block;
  }
  /// The used block that `cookie` names; kNone where that use is over.
  std::uint32_t find(std::uint64_t cookie) const noexcept {
    const auto block = static_cast<std::uint32_t>(cookie);
    return block < blocks_.size() && names(cookie) ? block : kNone;
  }
  /// That use is not over. REQUIRES: cookie() gave it.
  bool names(std::uint64_t cookie) const noexcept {
    return blocks_[static_cast<std::uint32_t>(cookie)].tag == cookie >> 32;
  }

  /// `block`, which may be of the past, is free, and holds [start, end).
  bool is_hole_of(std::uint32_t block, std::uint64_t start, std::uint64_t end) const noexcept {
    const auto& at = blocks_[block];
    return is_free(block) && at.address <= start && end <= at.address + bytes(at.size);
  }
  State state(std::uint32_t block) const noexcept { return State(blocks_[block].tag & 3); }
  std::uint64_t address(std::uint32_t block) const noexcept { return blocks_[block].address; }
  std::uint32_t size(std::uint32_t block) const noexcept { return blocks_[block].size; }
  /// The neighbours; kNone at an end.
  std::uint32_t before(std::uint32_t block) const noexcept { return named(blocks_[block].before); }
  std::uint32_t after(std::uint32_t block) const noexcept { return named(blocks_[block].after); }
  /// What the owner keeps with a used or parked block.
  std::uint64_t note(std::uint32_t block) const noexcept {
    return (std::uint64_t{blocks_[block].previous} << 32) | blocks_[block].next;
  }
  void set_note(std::uint32_t block, std::uint64_t note) noexcept {
    blocks_[block].next = static_cast<std::uint32_t>(note);
    blocks_[block].previous = static_cast<std::uint32_t>(note >> 32);
  }

  /// What grows with the blocks.
  std::uint64_t metadata_bytes() const noexcept {
    return (blocks_.capacity() - kFirst) * sizeof(Block);
  }
  /// What does not.
  static constexpr std::uint64_t fixed_metadata_bytes() noexcept {
    return kFirst * sizeof(Block) + sizeof(Blocks);
  }
  /// Calls visit(block) for every block there is, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (auto block = kFirst; block < blocks_.size(); ++block) {
      if (blocks_[block].size > 0) visit(block);
    }
  }
  /// Calls visit(address, bytes) for everything that is free, as it would be were all of it joined.
  template <class Visit>
  void for_each_hole(Visit&& visit) const {
    const auto is = [&](std::uint32_t block, State wanted) {
      return block != kEdge && blocks_[block].size > 0 && state(block) == wanted;
    };
    for_each_free(1, [&](std::uint32_t block) {
      if (is(blocks_[block].before, State::aside) || is(blocks_[block].after, State::aside)) return;
      visit(blocks_[block].address, bytes(blocks_[block].size));
    });
    for (auto sizes = kept_sizes_; sizes != 0; sizes &= sizes - 1) {
      for (const auto kept : kept_[static_cast<std::size_t>(std::countr_zero(sizes))]) {
        if (kept == kNone) continue;
        auto lowest = kept;  // of its neighbours that are kept too the lowest speaks for all
        bool speaks = true;
        for (auto at = blocks_[kept].before; is(at, State::free) || is(at, State::aside);
             at = blocks_[at].before) {
          if (is(at, State::aside)) speaks = false;
          lowest = at;
        }
        if (!speaks) continue;
        std::uint64_t sum = 0;
        for (auto at = lowest; is(at, State::free) || is(at, State::aside); at = blocks_[at].after)
          sum += bytes(blocks_[at].size);
        visit(blocks_[lowest].address, sum);
      }
    }
  }
  /// Where all around `block` that is free begins and ends, as if all of it were joined, and
  /// `block` free.
  std::pair<std::uint64_t, std::uint64_t> hole_around(std::uint32_t block) const noexcept {
    const auto joins = [&](std::uint32_t at) {
      return at != kEdge && (state(at) == State::free || state(at) == State::aside);
    };
    auto low = block;
    while (joins(blocks_[low].before)) low = blocks_[low].before;
    auto high = block;
    while (joins(blocks_[high].after)) high = blocks_[high].after;
    return {blocks_[low].address, blocks_[high].address + bytes(blocks_[high].size)};
  }
  /// Calls visit(block) for every free block of at least `granules`, the larger classes first.
  template <class Visit>
  void for_each_free(std::uint32_t granules, Visit&& visit) const {
    any_free(granules, [&](std::uint32_t block) {
      visit(block);
      return false;
    });
  }
  /// The same as far as that is false.
  template <class Is>
  bool any_free(std::uint32_t granules, Is&& is) const {
    const auto least = class_of(granules);
    for (auto word = filled_.size(); word-- > least / 64;) {
      for (auto bits = filled_[word]; bits != 0;) {
        const auto bit = static_cast<std::uint32_t>(std::bit_width(bits)) - 1;
        bits ^= std::uint64_t{1} << bit;
        const auto bin = static_cast<std::uint32_t>(word) * 64 + bit;
        for (auto at = blocks_[bin].next; at != bin; at = blocks_[at].next) {
          if (blocks_[at].size >= granules && is(at)) return true;
        }
      }
    }
    return false;
  }
  /// No free block of less than `granules` has more, none of them kept whole.
  std::uint32_t most_below(std::uint32_t granules) const noexcept;

 private:
  /// A free one is in a ring with the others of its class and with that class's own entry, the
  /// first of blocks_; so no link ends, and none is asked whether it does.
  struct Block {
    std::uint64_t address = 0;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;  ///< The number of its uses times 4, and its State.
    std::uint32_t before = kEdge;
    std::uint32_t after = kEdge;
    std::uint32_t next = 0;  ///< In its ring; of an absent one: the next absent one.
    std::uint32_t previous = 0;
    // next and previous are the note of a used one.
  };
  static_assert(sizeof(Block) == 32);

  static constexpr unsigned kFine = 5;  ///< 2^5 classes to an octave
  static constexpr std::uint32_t kMostGranules = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kClasses = (32 - kFine + 1) << kFine;
  static constexpr std::uint32_t kSmall = 2u << kFine;  ///< Below, classes are exact.
  static_assert(kSmall == 64);
  static constexpr std::uint32_t kEdge = kClasses;  ///< Stands where there is no neighbour; used.
  static constexpr std::uint32_t kFirst = kEdge + 1;

  /// Exact below 64 granules, then 32 to an octave.
  static std::uint32_t class_of(std::uint32_t granules) noexcept {
    const auto octave = static_cast<unsigned>(std::bit_width(granules | (1u << kFine))) - 1 - kFine;
    return (octave << kFine) + (granules >> octave);
  }
  /// The most that a block of the class has.
  static std::uint32_t most_of(std::uint32_t bin) noexcept {
    if (bin < kSmall) return bin;
    const auto octave = (bin >> kFine) - 1;
    return ((bin - (octave << kFine) + 1) << octave) - 1;
  }
  static void set_state(Block& block, State state) noexcept {
    block.tag = (block.tag & ~3u) | static_cast<std::uint32_t>(state);
  }
  bool is_free(std::uint32_t block) const noexcept { return state(block) == State::free; }
  static std::uint32_t named(std::uint32_t block) noexcept {
    return block == kEdge ? kNone : block;
  }

  void join(std::uint32_t block) noexcept;
  std::uint32_t take_hole(std::uint32_t granules);
  std::uint32_t make() {
    if (absent_ == kNone) return make_another();
    return std::exchange(absent_, blocks_[absent_].next);
  }
  std::uint32_t make_another();
  void drop(std::uint32_t block) noexcept {
    set_state(blocks_[block], State::aside);
    blocks_[block].size = 0;
    blocks_[block].next = std::exchange(absent_, block);
  }
  void use(std::uint32_t block) noexcept {
    auto& tag = blocks_[block].tag;
    tag = ((tag & ~3u) + 4) | static_cast<std::uint32_t>(State::used);
  }
  void insert(std::uint32_t block, std::uint32_t bin) noexcept;
  void insert(std::uint32_t block) noexcept {
    set_state(blocks_[block], State::free);
    insert(block, class_of(blocks_[block].size));
  }
  void erase(std::uint32_t block) noexcept;
  void resize(std::uint32_t block, std::uint32_t granules) noexcept;
  std::uint32_t split(std::uint32_t block, std::uint32_t granules);
  std::uint32_t best_of(std::uint32_t bin, std::uint32_t granules) const noexcept;
  std::uint32_t next_bin(std::uint32_t bin) const noexcept;

  unsigned shift_;
  std::uint64_t mask_;  ///< Of the bits within a granule.
  std::uint32_t absent_ = kNone;
  std::uint32_t last_ = kNone;
  std::vector<Block> blocks_;
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_{};  ///< A bit for each class.
  /// The two of each small size that were freed last. For take() and release() of what most
  /// programs ask most often there is then nothing to look for and nothing to join.
  std::array<std::array<std::uint32_t, 2>, kSmall> kept_{};
  std::uint64_t kept_sizes_ = 0;  ///< A bit for each that there may be one of.
  std::uint64_t words_ = 0;       ///< A bit for each word of filled_.
};

// The smallest that fits, of those the lowest. Large blocks are few and worth a longer look than
// small ones.
inline std::uint32_t Blocks::best_of(std::uint32_t bin, std::uint32_t granules) const noexcept {
  auto look = granules >= 2048 ? 32 : 4;
  auto best = kNone;
  auto best_key = ~std::uint64_t{0};
  for (auto at = blocks_[bin].next; at != bin && look > 0; at = blocks_[at].next, --look) {
    const auto& block = blocks_[at];
    const auto key = (std::uint64_t{block.size} << 32) | ((block.address >> 8) & 0xffffffffu);
    const bool better = block.size >= granules && key < best_key;
    best = better ? at : best;
    best_key = better ? key : best_key;
  }
  return best;
}

inline std::uint32_t Blocks::next_bin(std::uint32_t bin) const noexcept {
  auto word = bin / 64;
  auto bits = filled_[word] & (~std::uint64_t{0} << (bin % 64));
  if (bits == 0) {
    const auto words = words_ & (~std::uint64_t{1} << word);
    if (words == 0) return kNone;
    word = static_cast<std::uint32_t>(std::countr_zero(words));
    bits = filled_[word];
  }
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
}

inline void Blocks::insert(std::uint32_t block, std::uint32_t bin) noexcept {
  auto* const blocks = blocks_.data();
  const auto next = blocks[bin].next;
  blocks[block].next = next;
  blocks[block].previous = bin;
  blocks[next].previous = block;
  blocks[bin].next = block;
  filled_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  words_ |= std::uint64_t{1} << (bin / 64);
}

inline void Blocks::erase(std::uint32_t block) noexcept {
  auto* const blocks = blocks_.data();
  const auto next = blocks[block].next;
  const auto previous = blocks[block].previous;
  blocks[next].previous = previous;
  blocks[previous].next = next;
  if (next != previous) return;
  const auto bin = next;  // of the ring nothing but its own entry is left
  auto& word = filled_[bin / 64];
  word &= ~(std::uint64_t{1} << (bin % 64));
  words_ &= ~(std::uint64_t{word == 0} << (bin / 64));
}

// What is left of the hole, or has been joined to one, stays where it is in its ring unless its
// class changes.
inline void Blocks::resize(std::uint32_t block, std::uint32_t granules) noexcept {
  auto& size = blocks_[block].size;
  const auto bin = class_of(granules);
  const bool stays = bin == class_of(size);
  size = granules;
  if (stays) return;
  erase(block);
  insert(block, bin);
}

[[gnu::always_inline]] inline std::uint32_t Blocks::take(std::uint32_t granules) {
  if (granules < kSmall) {
    auto& kept = kept_[granules];
    if (const auto block = kept[0]; block != kNone) {
      kept[0] = std::exchange(kept[1], kNone);
      use(block);
      return block;
    }
  }
  return take_hole(granules);
}

[[gnu::always_inline]] inline std::uint32_t Blocks::take_hole(std::uint32_t granules) {
  auto bin = class_of(granules);
  auto hole = best_of(bin, granules);
  if (hole == kNone) {
    bin = next_bin(bin + 1);
    if (bin == kNone) return kNone;
    hole = best_of(bin, granules);
  }
  const auto rest = blocks_[hole].size - granules;
  if (rest == 0) {
    erase(hole);
    use(hole);
    return hole;
  }
  const auto block = make();
  auto& lower = blocks_[block];
  auto& upper = blocks_[hole];
  const auto before = upper.before;
  lower.address = upper.address;
  lower.size = granules;
  lower.before = before;
  lower.after = hole;
  use(block);
  blocks_[before].after = block;
  upper.before = block;
  upper.address += bytes(granules);
  upper.size = rest;
  if (const auto now = class_of(rest); now != bin) {
    erase(hole);
    insert(hole, now);
  }
  return block;
}

[[gnu::always_inline]] inline void Blocks::release(std::uint32_t block) noexcept {
  if (const auto size = blocks_[block].size; size < kSmall) {
    set_state(blocks_[block], State::aside);
    __builtin_prefetch(&blocks_[blocks_[block].before]);  // join() will ask them
    __builtin_prefetch(&blocks_[blocks_[block].after]);
    kept_sizes_ |= std::uint64_t{1} << size;
    auto& kept = kept_[size];
    block = std::exchange(kept[1], std::exchange(kept[0], block));
    if (block == kNone) return;
  }
  join(block);
}

[[gnu::always_inline]] inline void Blocks::join(std::uint32_t block) noexcept {
  auto* const blocks = blocks_.data();
  auto& at = blocks[block];
  const auto lower = at.before;
  const auto upper = at.after;
  const bool joins_lower = is_free(lower);
  if (!is_free(upper)) {
    if (!joins_lower) return insert(block);
    blocks[lower].after = upper;
    blocks[upper].before = lower;
    if (last_ == block) last_ = lower;
    resize(lower, blocks[lower].size + at.size);
  } else if (!joins_lower) {
    auto& hole = blocks[upper];
    hole.address = at.address;
    hole.before = lower;
    blocks[lower].after = upper;
    resize(upper, hole.size + at.size);
  } else {
    const auto after = blocks[upper].after;
    const auto size = blocks[lower].size + at.size + blocks[upper].size;
    erase(upper);
    if (last_ == upper) last_ = lower;
    drop(upper);
    blocks[lower].after = after;
    blocks[after].before = lower;
    resize(lower, size);
  }
  drop(block);
}

}  // namespace emm::pool
