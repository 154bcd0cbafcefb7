#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocators/pytorch/heap.hpp"

namespace emm::allocators::pytorch {

// What PyTorch's native allocator decides, as functions of the heap: they change nothing. The rules
// are those of c10's CUDACachingAllocator, PyTorch 2.11.

/// A request on its way: the pool that serves it, and its sizes.
struct Wanted {
  Pool* pool = nullptr;
  std::uint64_t size = 0;     ///< round_size()'s.
  std::uint64_t segment = 0;  ///< segment_size()'s.
  std::uint64_t stream = 0;
};

/// Best fit, the lowest address among equals; of expandable segments the tail that can grow is used
/// last. Null where no free block serves.
Block* find_free(const Settings& settings, const Wanted& wanted);
/// Whether the rest of `block` becomes a block of its own.
bool splits(const Settings& settings, const Block& block, std::uint64_t size) noexcept;

/// A piece of a range that is to be mapped.
struct Mapping {
  Block* block = nullptr;  ///< Unmapped.
  std::uint64_t address = 0, size = 0;
};
/// Where `wanted.size` bytes lie together, and what must be mapped for it, whole granules.
struct Room {
  Block* first = nullptr;
  std::vector<Mapping> mappings;  ///< Empty where the free block `first` has room by itself.
};
/// The lowest gap with room, with the free block before it: that one serves alone where it is large
/// enough and max_split_size keeps find_free() from it. Nothing where the ranges of the pool have
/// no room: a new one is needed.
std::optional<Room> find_room(const Settings& settings, const Wanted& wanted);
/// Bytes by which memory of the pool is mapped.
std::uint64_t granule(const Settings& settings, const Pool& pool) noexcept;

/// Free blocks that garbage collection releases when a request found none, in its order.
std::vector<Block*> garbage(const Settings& settings, const Heap& heap);
/// Free blocks of max_split_size or more that are released when the device has no room, and whether
/// what they hold is enough.
struct Oversize {
  std::vector<Block*> blocks;
  bool suffices = false;
};
Oversize oversize(const Settings& settings, const Wanted& wanted);
/// Whole free segments, and the part of a free block that is unmapped, in the order of their
/// release by `empty_cache` and by a retry.
struct Idle {
  Block* block = nullptr;
  std::uint64_t address = 0, size = 0;
};
std::vector<Idle> idle(const Settings& settings, const Heap& heap);
/// Appends what idle() would list of one pool.
void add_idle(const Settings& settings, const Pool& pool, std::vector<Idle>& found);

}  // namespace emm::allocators::pytorch
