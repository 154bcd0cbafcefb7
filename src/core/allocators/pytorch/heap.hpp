#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "allocators/pytorch/settings.hpp"

namespace emm::allocators::pytorch {

/// Names the private pool of a CUDA graph or of a MemPool, as PyTorch does. {0, 0} is the default
/// pool.
struct PoolId {
  std::uint64_t first = 0, second = 0;
  bool is_default() const noexcept { return first == 0 && second == 0; }
  auto operator<=>(const PoolId&) const = default;
};

struct Block;
struct Pool;
struct Segment;

struct BySize {
  bool operator()(const Block* a, const Block* b) const noexcept;
};
using FreeBlocks = std::set<Block*, BySize>;

/// A piece of a segment, linked to its neighbours. Free neighbours always differ in `mapped`.
struct Block {
  enum class State : std::uint8_t {
    free,
    active,
    pending,  ///< Freed, but waiting for work on other streams.
  };
  std::uint64_t address = 0, size = 0;
  std::uint64_t stream = 0;
  std::uint64_t lookups = 0;  ///< The pool's `lookups` when the block became free.
  std::uint64_t owner = 0;    ///< The caller's own name for the block.
  Pool* pool = nullptr;
  Segment* segment = nullptr;
  Block *before = nullptr, *after = nullptr;
  FreeBlocks::iterator place{};  ///< Position of a free block in its pool's `free`.
  State state = State::free;
  bool mapped = true;

  bool is_free() const noexcept { return state == State::free && mapped; }
  bool is_split() const noexcept { return before != nullptr || after != nullptr; }
};

/// One cudaMalloc, or a range of addresses that is mapped in parts.
struct Segment {
  std::uint64_t address = 0, size = 0;
  Pool* pool = nullptr;
  Block* first = nullptr;
  bool expandable = false;
};

inline bool BySize::operator()(const Block* a, const Block* b) const noexcept {
  if (a->stream != b->stream) return a->stream < b->stream;
  if (a->size != b->size) return a->size < b->size;
  return a->address < b->address;
}
struct ByAddress {
  bool operator()(const Block* a, const Block* b) const noexcept {
    return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
  }
};

struct Pool {
  PoolId id{};
  bool small = false;
  bool expandable = false;  ///< New memory is mapped into a range.
  bool unused = false;      ///< No graph and no MemPool refers to this private pool any more.
  FreeBlocks free{};
  std::set<Block*, ByAddress> unmapped{};
  std::uint64_t lookups = 0;
};

/// Holds the blocks and segments of one device, and changes them step by step. policy.hpp and
/// allocator.hpp decide which step happens when. Not safe for several threads.
class Heap {
 public:
  explicit Heap(const Settings& settings) : settings_(settings) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Settings& settings() const noexcept { return settings_; }
  Pool& pool(PoolId id, bool small);
  /// Lists the default pool first and the others by their ids; of each, large before small.
  const std::map<std::pair<PoolId, bool>, std::unique_ptr<Pool>>& pools() const noexcept {
    return pools_;
  }

  /// The free blocks of a pool that exists; none where it does not.
  const FreeBlocks& free_of(PoolId id, bool small) const noexcept;
  /// Adds a segment. All of it is one free block, which is returned.
  Block* add_segment(std::uint64_t address, std::uint64_t size, std::uint64_t stream, Pool& pool);
  /// Adds a range of which nothing is mapped yet. It is one unmapped block, which is returned.
  Block* add_range(std::uint64_t address, std::uint64_t size, std::uint64_t stream, Pool& pool);
  /// Removes a segment that is one free block.
  void remove_segment(Block* block);
  /// Maps the first `size` bytes of an unmapped block. They become free and merge with free
  /// neighbours. Returns the block that they are in.
  Block* map(Block* block, std::uint64_t size);
  /// Unmaps the part [address, +size) of a free block, which merges with unmapped neighbours.
  /// Returns the block that it is in.
  Block* unmap(Block* block, std::uint64_t address, std::uint64_t size);
  /// Makes the front of a free block active. The rest stays free where `split`.
  Block* take(Block* block, std::uint64_t size, bool split);
  /// Cuts the first `bytes` off a free block: they become a block of their own. Returns the rest.
  Block* cut_front(Block* block, std::uint64_t bytes);
  void set_pending(Block* block) noexcept { block->state = Block::State::pending; }
  /// Frees an active or pending block and merges it with free neighbours. Returns the block that it
  /// is in.
  Block* release(Block* block);

  /// Bytes of all segments; of ranges, only the mapped bytes.
  std::uint64_t reserved() const noexcept { return reserved_; }
  Segment* segment_of(std::uint64_t address) const noexcept;
  /// The block that holds the address; null where none does.
  Block* block_at(std::uint64_t address) const noexcept;
  const std::map<std::uint64_t, std::unique_ptr<Segment>>& segments() const noexcept {
    return segments_;
  }

 private:
  /// Makes a segment that is one block. The block is free, or unmapped if the segment is a range.
  Block* add(const Segment& made, std::uint64_t stream);
  Block* make(const Block& block);
  void drop(Block* block) noexcept;
  void link(Block* before, Block* block, Block* after) noexcept;
  void insert(Block* block);
  void erase(Block* block);
  bool absorb(Block* block, Block* neighbour);

  const Settings settings_;
  std::map<std::pair<PoolId, bool>, std::unique_ptr<Pool>> pools_;
  std::map<std::uint64_t, std::unique_ptr<Segment>> segments_;
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
  std::vector<FreeBlocks::node_type> spare_nodes_;  ///< Set nodes that later frees reuse.
  std::uint64_t reserved_ = 0;
};

}  // namespace emm::allocators::pytorch
