#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "driver/types.hpp"

namespace emm {

/// The streams whose work may still be using memory that has been freed: none, one or two.
struct Unfinished {
  int count = 0;
  StreamHandle first{};
  StreamHandle second{};

  static Unfinished on(StreamHandle stream) noexcept { return {.count = 1, .first = stream}; }
  static Unfinished on(StreamHandle a, StreamHandle b) noexcept;
  auto operator<=>(const Unfinished&) const = default;
};

/// The block map of a pool: slabs cut into blocks in address order, best fit, neighbours coalesced. Knows no
/// driver. Every operation but merge_for() and park_all() is O(log n), and what frees allocates nothing.
///
/// A free block remembers the streams that may still use it. It is handed out again at once only to that one
/// stream, or when there is none; else it is parked, its streams are waited for by who parks it, and it is
/// unparked. Neighbours are joined where they wait for the same streams.
///
/// One thread at a time.
class PoolBlocks {
 public:
  explicit PoolBlocks(std::uint64_t alignment) noexcept : alignment_(alignment) {}  ///< A power of two.

  struct Taken {
    DevicePtr ptr;
    std::uint64_t cookie = 0;  ///< For release(); never used again.
  };
  struct Parked {
    std::uint32_t block = 0;
    Unfinished streams;
  };
  struct Slab {
    DevicePtr base;
    std::uint64_t size = 0;
  };

  /// `size` > 0, rounded up to the alignment. REQUIRES: the sum is in range.
  std::uint64_t rounded(std::uint64_t size) const noexcept { return (size + alignment_ - 1) & ~(alignment_ - 1); }

  /// The smallest block, and of those the lowest, that `stream` may use at once; empty where there is none.
  std::optional<Taken> take(std::uint64_t size, StreamHandle stream);
  /// Nothing where the cookie is of memory that is gone. `stream` is where it is freed, 0 where nobody said.
  void release(std::uint64_t cookie, StreamHandle stream) noexcept;

  /// Joins what `stream` may use at once with neighbours that nobody uses any more.
  void merge_for(StreamHandle stream) noexcept;
  /// Sets the smallest block that fits aside, whatever its streams.
  std::optional<Parked> park_best(std::uint64_t size) noexcept;
  /// Sets every block aside that has streams.
  std::vector<Parked> park_all();
  /// Puts a block back, `finished` where its streams have been waited for.
  void unpark(const Parked& parked, bool finished) noexcept;

  void add_slab(Slab slab);
  /// Takes one slab out that holds no memory in use, if more than `keep` bytes are reserved.
  std::optional<Slab> remove_idle_slab(std::uint64_t keep) noexcept;
  /// Ends all memory that is in use.
  void release_all() noexcept;

  std::uint64_t live_bytes() const noexcept { return live_bytes_; }  ///< As requested.
  std::uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }
  std::uint64_t largest_free_bytes() const noexcept;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct FreeKey {
    Unfinished streams;
    std::uint64_t size = 0;
    std::uint64_t address = 0;
    std::uint32_t block = kNone;
    auto operator<=>(const FreeKey&) const = default;
  };
  using FreeBlocks = std::set<FreeKey>;
  enum class State : std::uint8_t { absent, free, used, parked };
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested = 0;   ///< Of a used one.
    Unfinished streams{};          ///< Of a free one; of a used one the stream it was asked for on.
    FreeBlocks::node_type node{};  ///< Of a block that is not free: its place in the set, kept for its return.
    std::uint32_t before = kNone;  ///< In address order, in its slab.
    std::uint32_t after = kNone;   ///< Of an absent one: the next absent one.
    std::uint32_t slab = kNone;
    std::uint32_t generation = 0;  ///< Odd while used.
    State state = State::absent;
  };
  struct SlabState {
    Slab slab;
    std::uint32_t first = kNone;  ///< Its lowest block.
    std::uint32_t busy = 0;       ///< Blocks used or parked.
    std::uint32_t before = kNone; ///< Among idle slabs, longest idle first.
    std::uint32_t after = kNone;  ///< Of an absent one: the next absent one.
  };

  std::uint32_t make_block();
  FreeKey key_of(std::uint32_t block) const noexcept;
  FreeBlocks::iterator best(const Unfinished& streams, std::uint64_t size) noexcept;
  void set_aside(FreeBlocks::iterator at, State state) noexcept;
  void put_back(std::uint32_t block, const Unfinished& streams) noexcept;
  bool join_after(std::uint32_t block, const Unfinished& streams) noexcept;
  void end_use(std::uint32_t block, const Unfinished& streams) noexcept;
  void link_idle(std::uint32_t slab) noexcept;
  void unlink_idle(std::uint32_t slab) noexcept;

  std::uint64_t alignment_;
  std::vector<Block> blocks_;
  std::vector<SlabState> slabs_;
  FreeBlocks free_;
  std::uint32_t absent_blocks_ = kNone;
  std::uint32_t absent_slabs_ = kNone;
  std::uint32_t first_idle_ = kNone;
  std::uint32_t last_idle_ = kNone;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace emm
