#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace emm::pool {

/// An index that names nothing.
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// The block map of one arena: runs of addresses, cut into blocks that are used or free.
///
/// An allocation gets the smallest free block that a short look finds. A freed block is coalesced
/// with free neighbours at once, except that the last two of each small size are kept whole for the
/// next request of that size. A free block is in the ring of its size class: 32 classes to an
/// octave, exact below 64 granules.
///
/// It knows no driver and no stream. Sizes are in granules, addresses in bytes. A block takes 32
/// bytes; records are reused, so a call that needs no more blocks than there have been takes
/// nothing from the heap. One thread at a time.
///
/// allocate() and free() are inlined into their callers: the calls would take a tenth of the path's
/// 30 ns.
class BlockMap {
 public:
  /// A kept block is free, but stays whole and is in no ring. A deferred block has been freed, but
  /// must not be handed out yet.
  enum class State : std::uint32_t { kept, used, free, deferred };

  /// Granules are of 2^`shift` bytes.
  explicit BlockMap(unsigned shift);

  std::uint32_t granules(std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>((bytes + mask_) >> shift_);
  }
  /// `bytes`, rounded up to whole granules.
  std::uint64_t rounded(std::uint64_t bytes) const noexcept { return (bytes + mask_) & ~mask_; }
  std::uint64_t bytes(std::uint32_t granules) const noexcept {
    return std::uint64_t{granules} << shift_;
  }
  /// Every block is smaller than this many bytes.
  static std::uint64_t largest(unsigned shift) noexcept {
    return std::uint64_t{kMostGranules} << shift;
  }

  /// Allocates `granules` > 0 from the smallest free block that a short search finds. kNone if it
  /// finds none.
  std::uint32_t allocate(std::uint32_t granules);
  /// Searches the whole size class after allocate() has found nothing. kNone means that no free
  /// block is large enough.
  std::uint32_t allocate_any(std::uint32_t granules);
  /// Allocates `granules` of a free block, from `address` on. REQUIRES: they lie in that block.
  std::uint32_t carve(std::uint32_t block, std::uint64_t address, std::uint32_t granules);
  /// Frees a used or deferred block.
  void free(std::uint32_t block) noexcept;
  /// Coalesces all kept blocks. False if there was none.
  bool coalesce_kept() noexcept;
  /// Marks a used block as freed. It is not handed out again before free().
  void defer(std::uint32_t block) noexcept { set_state(blocks_[block], State::deferred); }

  /// Adds free addresses. With `joined` they follow the run that was added last and coalesce with
  /// it.
  void extend(bool joined, std::uint64_t address, std::uint32_t granules);
  /// The last block of the run that was added last; kNone once that block has been removed.
  std::uint32_t last() const noexcept { return last_; }
  /// Takes a free block out of the map. Blocks are not coalesced across the gap.
  void remove(std::uint32_t block) noexcept;
  /// Splits a free block at `address`, which lies in it. Returns the upper part, or the block
  /// itself if it starts there.
  std::uint32_t split_at(std::uint32_t block, std::uint64_t address);
  /// Takes every free block out of the map.
  void remove_all_free() noexcept;
  /// Hands out records from the first one on again, so that the same calls get the same records.
  /// REQUIRES: the map is empty.
  void renumber() noexcept;
  /// The largest number of blocks that existed at one time.
  std::size_t count() const noexcept { return blocks_.size() - kFirst; }
  /// Frees every block and takes it out of the map.
  void clear() noexcept;

  /// Identifies this use of a used block. A cookie repeats only after one record has been used 2^30
  /// times.
  std::uint64_t cookie(std::uint32_t block) const noexcept {
    return (std::uint64_t{blocks_[block].tag} << 32) | block;
  }
  /// The used block that `cookie` names; kNone if that use has ended.
  std::uint32_t find(std::uint64_t cookie) const noexcept {
    const auto block = static_cast<std::uint32_t>(cookie);
    return block < blocks_.size() && names(cookie) ? block : kNone;
  }
  /// Answers whether the use that `cookie` names still lasts. REQUIRES: it came from cookie().
  bool names(std::uint64_t cookie) const noexcept {
    return blocks_[static_cast<std::uint32_t>(cookie)].tag == cookie >> 32;
  }

  /// Answers whether `block`, which may no longer exist, is free and holds [start, end).
  bool is_free_and_holds(std::uint32_t block, std::uint64_t start,
                         std::uint64_t end) const noexcept {
    const auto& at = blocks_[block];
    return is_free(block) && at.address <= start && end <= at.address + bytes(at.size);
  }
  State state(std::uint32_t block) const noexcept { return State(blocks_[block].tag & 3); }
  std::uint64_t address(std::uint32_t block) const noexcept { return blocks_[block].address; }
  std::uint32_t size(std::uint32_t block) const noexcept { return blocks_[block].size; }
  /// Bytes of the block, and the address behind it.
  std::uint64_t bytes_of(std::uint32_t block) const noexcept { return bytes(blocks_[block].size); }
  std::uint64_t end(std::uint32_t block) const noexcept { return address(block) + bytes_of(block); }
  /// The neighbours; kNone at an end.
  std::uint32_t before(std::uint32_t block) const noexcept { return named(blocks_[block].before); }
  std::uint32_t after(std::uint32_t block) const noexcept { return named(blocks_[block].after); }
  /// 64 bits that the owner keeps with a used or deferred block.
  std::uint64_t payload(std::uint32_t block) const noexcept {
    return (std::uint64_t{blocks_[block].previous} << 32) | blocks_[block].next;
  }
  void set_payload(std::uint32_t block, std::uint64_t note) noexcept {
    blocks_[block].next = static_cast<std::uint32_t>(note);
    blocks_[block].previous = static_cast<std::uint32_t>(note >> 32);
  }

  /// Bytes of the host's memory that grow with the number of blocks.
  std::uint64_t metadata_bytes() const noexcept {
    return (blocks_.capacity() - kFirst) * sizeof(BlockRecord);
  }
  /// Bytes of the host's memory that do not grow with the number of blocks.
  static constexpr std::uint64_t fixed_metadata_bytes() noexcept {
    return kFirst * sizeof(BlockRecord) + sizeof(BlockMap);
  }
  /// Calls visit(block) for every block there is, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (auto block = kFirst; block < blocks_.size(); ++block) {
      if (blocks_[block].size > 0) visit(block);
    }
  }
  /// Calls visit(address, bytes) for each free run, as if the kept blocks were coalesced.
  template <class Visit>
  void for_each_free_block(Visit&& visit) const {
    const auto is = [&](std::uint32_t block, State wanted) {
      return block != kEdge && blocks_[block].size > 0 && state(block) == wanted;
    };
    for_each_free(1, [&](std::uint32_t block) {
      if (is(blocks_[block].before, State::kept) || is(blocks_[block].after, State::kept)) return;
      visit(blocks_[block].address, bytes(blocks_[block].size));
    });
    for (auto sizes = kept_sizes_; sizes != 0; sizes &= sizes - 1) {
      for (const auto kept : kept_[static_cast<std::size_t>(std::countr_zero(sizes))]) {
        if (kept == kNone) continue;
        auto lowest = kept;  // the lowest kept block of a run reports the run
        bool speaks = true;
        for (auto at = blocks_[kept].before; is(at, State::free) || is(at, State::kept);
             at = blocks_[at].before) {
          if (is(at, State::kept)) speaks = false;
          lowest = at;
        }
        if (!speaks) continue;
        std::uint64_t sum = 0;
        for (auto at = lowest; is(at, State::free) || is(at, State::kept); at = blocks_[at].after)
          sum += bytes(blocks_[at].size);
        visit(blocks_[lowest].address, sum);
      }
    }
  }
  /// Calls visit(block) for every free block of at least `granules`, larger classes first. Skips
  /// kept blocks.
  template <class Visit>
  void for_each_free(std::uint32_t granules, Visit&& visit) const {
    const auto least = class_of(granules);
    for (auto word = filled_.size(); word-- > least / 64;) {
      for (auto bits = filled_[word]; bits != 0;) {
        const auto bit = static_cast<std::uint32_t>(std::bit_width(bits)) - 1;
        bits ^= std::uint64_t{1} << bit;
        const auto bin = static_cast<std::uint32_t>(word) * 64 + bit;
        for (auto at = blocks_[bin].next; at != bin; at = blocks_[at].next) {
          if (blocks_[at].size >= granules) visit(at);
        }
      }
    }
  }
  /// An upper bound of the largest free block below `granules`: the largest size of its size class.
  /// Kept blocks do not count.
  std::uint32_t largest_below(std::uint32_t granules) const noexcept;

 private:
  /// A free block is in a ring with the others of its class and with the head of the class, which
  /// is one of the first records. A ring has no end, so no code tests a link for the end.
  struct BlockRecord {
    std::uint64_t address = 0;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;  ///< How often it was used, times 4, plus its State.
    std::uint32_t before = kEdge;
    std::uint32_t after = kEdge;
    std::uint32_t next = 0;  ///< The next block of its ring, or the next unused record.
    std::uint32_t previous = 0;
    // A used or deferred block is in no ring: its next and previous hold its payload.
  };
  static_assert(sizeof(BlockRecord) == 32);

  static constexpr unsigned kFine = 5;  ///< 2^5 classes to an octave
  // A span has no more: its count of granules shares a word with a flag.
  static constexpr std::uint32_t kMostGranules = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kClasses = (32 - kFine + 1) << kFine;
  static constexpr std::uint32_t kSmall = 2u << kFine;  ///< Below, classes are exact.
  static_assert(kSmall == 64);
  static constexpr std::uint32_t kEdge = kClasses;  ///< Stands for a missing neighbour; never free.
  static constexpr std::uint32_t kFirst = kEdge + 1;

  /// Exact below 64 granules, then 32 to an octave.
  static std::uint32_t class_of(std::uint32_t granules) noexcept {
    const auto octave = static_cast<unsigned>(std::bit_width(granules | (1u << kFine))) - 1 - kFine;
    return (octave << kFine) + (granules >> octave);
  }
  /// The largest size of a class.
  static std::uint32_t most_of(std::uint32_t bin) noexcept {
    if (bin < kSmall) return bin;
    const auto octave = (bin >> kFine) - 1;
    return ((bin - (octave << kFine) + 1) << octave) - 1;
  }
  static void set_state(BlockRecord& block, State state) noexcept {
    block.tag = (block.tag & ~3u) | static_cast<std::uint32_t>(state);
  }
  bool is_free(std::uint32_t block) const noexcept { return state(block) == State::free; }
  static std::uint32_t named(std::uint32_t block) noexcept {
    return block == kEdge ? kNone : block;
  }

  void coalesce(std::uint32_t block) noexcept;
  std::uint32_t allocate_from_free(std::uint32_t granules);
  std::uint32_t new_record() {
    if (unused_ == kNone) return add_record();
    return std::exchange(unused_, blocks_[unused_].next);
  }
  std::uint32_t add_record();
  void retire(std::uint32_t block) noexcept {
    // Not State::free, because is_free_and_holds() may read the records of removed blocks. The use
    // count stays in the tag, so that no cookie repeats.
    set_state(blocks_[block], State::kept);
    blocks_[block].size = 0;
    blocks_[block].next = std::exchange(unused_, block);
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
  std::uint64_t mask_;  ///< Selects the bits within a granule.
  std::uint32_t unused_ = kNone;
  std::uint32_t last_ = kNone;
  std::vector<BlockRecord> blocks_;
  std::array<std::uint64_t, (kClasses + 63) / 64> filled_{};  ///< A bit for each class.
  /// The last two freed blocks of each small size. allocate() and free() of a kept block neither
  /// search nor coalesce. That is a third of GPT-2's requests.
  std::array<std::array<std::uint32_t, 2>, kSmall> kept_{};
  std::uint64_t kept_sizes_ = 0;  ///< A bit for each size that may have a kept block.
  std::uint64_t words_ = 0;       ///< A bit for each word of filled_.
};

// Finds the smallest block that fits; of equal blocks, the lowest. Large blocks are few, so a
// longer search is worth its time.
inline std::uint32_t BlockMap::best_of(std::uint32_t bin, std::uint32_t granules) const noexcept {
  auto look = granules >= 2048 ? 32 : 4;
  auto best = kNone;
  auto best_key = ~std::uint64_t{0};
  for (auto at = blocks_[bin].next; at != bin && look > 0; at = blocks_[at].next, --look) {
    const auto& block = blocks_[at];
    // 32 address bits in units of 256 bytes cover 1 TiB. Blocks farther apart may compare in the
    // wrong order, which is harmless.
    const auto key = (std::uint64_t{block.size} << 32) | ((block.address >> 8) & 0xffffffffu);
    const bool better = block.size >= granules && key < best_key;
    best = better ? at : best;
    best_key = better ? key : best_key;
  }
  return best;
}

inline std::uint32_t BlockMap::next_bin(std::uint32_t bin) const noexcept {
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

inline void BlockMap::insert(std::uint32_t block, std::uint32_t bin) noexcept {
  auto* const blocks = blocks_.data();
  const auto next = blocks[bin].next;
  blocks[block].next = next;
  blocks[block].previous = bin;
  blocks[next].previous = block;
  blocks[bin].next = block;
  filled_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  words_ |= std::uint64_t{1} << (bin / 64);
}

inline void BlockMap::erase(std::uint32_t block) noexcept {
  auto* const blocks = blocks_.data();
  const auto next = blocks[block].next;
  const auto previous = blocks[block].previous;
  blocks[next].previous = previous;
  blocks[previous].next = next;
  if (next != previous) return;
  const auto bin = next;  // only the head is left in the ring
  auto& word = filled_[bin / 64];
  word &= ~(std::uint64_t{1} << (bin % 64));
  words_ &= ~(std::uint64_t{word == 0} << (bin / 64));
}

// A block that shrinks or grows stays where it is in its ring unless its class changes.
inline void BlockMap::resize(std::uint32_t block, std::uint32_t granules) noexcept {
  auto& size = blocks_[block].size;
  const auto bin = class_of(granules);
  const bool stays = bin == class_of(size);
  size = granules;
  if (stays) return;
  erase(block);
  insert(block, bin);
}

[[gnu::always_inline]] inline std::uint32_t BlockMap::allocate(std::uint32_t granules) {
  if (granules < kSmall) {
    auto& kept = kept_[granules];
    if (const auto block = kept[0]; block != kNone) {
      kept[0] = std::exchange(kept[1], kNone);
      use(block);
      return block;
    }
  }
  return allocate_from_free(granules);
}

[[gnu::always_inline]] inline std::uint32_t BlockMap::allocate_from_free(std::uint32_t granules) {
  auto bin = class_of(granules);
  auto free_block = best_of(bin, granules);
  if (free_block == kNone) {
    bin = next_bin(bin + 1);
    if (bin == kNone) return kNone;
    free_block = best_of(bin, granules);
  }
  const auto rest = blocks_[free_block].size - granules;
  if (rest == 0) {
    erase(free_block);
    use(free_block);
    return free_block;
  }
  // The lower part gets the new record: the rest can then stay where it is in its ring.
  const auto block = new_record();
  auto& lower = blocks_[block];
  auto& upper = blocks_[free_block];
  const auto before = upper.before;
  lower.address = upper.address;
  lower.size = granules;
  lower.before = before;
  lower.after = free_block;
  use(block);
  blocks_[before].after = block;
  upper.before = block;
  upper.address += bytes(granules);
  upper.size = rest;
  if (const auto now = class_of(rest); now != bin) {
    erase(free_block);
    insert(free_block, now);
  }
  return block;
}

[[gnu::always_inline]] inline void BlockMap::free(std::uint32_t block) noexcept {
  if (const auto size = blocks_[block].size; size < kSmall) {
    set_state(blocks_[block], State::kept);
    __builtin_prefetch(&blocks_[blocks_[block].before]);  // coalesce() will read them
    __builtin_prefetch(&blocks_[blocks_[block].after]);
    kept_sizes_ |= std::uint64_t{1} << size;
    auto& kept = kept_[size];
    // The block that has been kept longest makes room; allocate() takes the one freed last, which
    // is likely in the cache.
    block = std::exchange(kept[1], std::exchange(kept[0], block));
    if (block == kNone) return;
  }
  coalesce(block);
}

[[gnu::always_inline]] inline void BlockMap::coalesce(std::uint32_t block) noexcept {
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
    auto& free_block = blocks[upper];
    free_block.address = at.address;
    free_block.before = lower;
    blocks[lower].after = upper;
    resize(upper, free_block.size + at.size);
  } else {
    const auto after = blocks[upper].after;
    const auto size = blocks[lower].size + at.size + blocks[upper].size;
    erase(upper);
    if (last_ == upper) last_ = lower;
    retire(upper);
    blocks[lower].after = after;
    blocks[after].before = lower;
    resize(lower, size);
  }
  retire(block);
}

}  // namespace emm::pool
