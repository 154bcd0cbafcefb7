#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocators/pytorch/heap.hpp"

namespace emm::allocators::pytorch {

// The decisions of PyTorch's native allocator, as functions that do not change the heap. The rules
// are those of c10's CUDACachingAllocator, PyTorch 2.11.

/// A request with the pool that serves it and its rounded sizes.
struct Wanted {
  Pool* pool = nullptr;
  std::uint64_t size = 0;     ///< From round_size().
  std::uint64_t segment = 0;  ///< From segment_size().
  std::uint64_t stream = 0;
};

/// Finds the best fit, the lowest address among equals. It takes the tail of an expandable segment
/// last, because the tail can grow. Returns null if no free block serves.
Block* find_free(const Settings& settings, const Wanted& wanted);
/// Answers whether the rest of `block` becomes its own block.
bool splits(const Settings& settings, const Block& block, std::uint64_t size) noexcept;

/// A piece of a range that is to be mapped.
struct Mapping {
  Block* block = nullptr;  ///< Unmapped.
  std::uint64_t address = 0, size = 0;
};
/// A place for `wanted.size` contiguous bytes, and the whole granules to map for it.
struct Room {
  Block* first = nullptr;
  std::vector<Mapping> mappings;  ///< Empty if the free block `first` has room by itself.
};
/// Finds the lowest gap with room, and the free block before it. That block serves alone if it is
/// large enough and find_free() passed it over because of max_split_size. Returns nothing if no
/// range of the pool has room, so that a new range is needed.
std::optional<Room> find_room(const Settings& settings, const Wanted& wanted);
/// Returns the bytes of the unit in which memory of the pool is mapped.
std::uint64_t granule(const Settings& settings, const Pool& pool) noexcept;

/// Lists the free blocks that garbage collection releases when a request found none, in the order
/// of release.
std::vector<Block*> garbage(const Settings& settings, const Heap& heap);
/// The free blocks of at least max_split_size that are released when the device has no room, and
/// whether their bytes suffice.
struct Oversize {
  std::vector<Block*> blocks;
  bool suffices = false;
};
Oversize oversize(const Settings& settings, const Wanted& wanted);
/// A whole free segment, or the part of a free block that can be unmapped. `empty_cache` and a
/// retry release them in the order of idle().
struct Idle {
  Block* block = nullptr;
  std::uint64_t address = 0, size = 0;
};
std::vector<Idle> idle(const Settings& settings, const Heap& heap);
/// Appends the idle memory of one pool.
void add_idle(const Settings& settings, const Pool& pool, std::vector<Idle>& found);

}  // namespace emm::allocators::pytorch
