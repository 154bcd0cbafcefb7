#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace emm::allocators {

/// A part of a region. A region is what the device gave in one request.
struct Chunk {
  std::uint64_t address = 0, size = 0;
  std::uint64_t list = 0;  ///< Which list holds it while it is free.
  bool is_free = false;
  bool begins = false, ends = false;  ///< Whether it is the first, or the last, of its region.

  bool is_region() const noexcept { return begins && ends; }
};

/// Keeps the chunks of regions, and lists of the free ones. Free neighbours in one region and one
/// list are one chunk. The heap only finds the best fit; the pool model decides the rest. Not safe
/// for several threads.
class ChunkHeap {
 public:
  /// Adds a region, which is one free chunk. A chunk stays where it is until it is merged or
  /// removed.
  Chunk* add_region(std::uint64_t address, std::uint64_t size, std::uint64_t list);
  /// Removes a region that is one free chunk.
  void remove_region(Chunk* chunk);
  /// Finds the smallest free chunk of `size` bytes or more, the lowest address among equals. Null
  /// if none serves.
  Chunk* best_fit(std::uint64_t list, std::uint64_t size) const;
  /// Lists the free chunks of exactly `size` bytes by address.
  std::vector<Chunk*> all_of(std::uint64_t list, std::uint64_t size) const;
  /// Cuts the first `bytes` off a free chunk: they become a chunk of their own. Returns the rest.
  Chunk* cut_front(Chunk* chunk, std::uint64_t bytes);
  /// Marks the chunk as in use. If `splits`, the bytes beyond `size` stay free in its list.
  Chunk* take(Chunk* chunk, std::uint64_t size, bool splits);
  /// Frees the chunk into `list` and merges it with its free neighbours. Returns the merged chunk.
  Chunk* release(Chunk* chunk, std::uint64_t list);
  /// Moves all free chunks of list `from` to list `to`, and merges them there.
  void move_all(std::uint64_t from, std::uint64_t to);
  bool is_empty(std::uint64_t list) const;
  /// Lists the free chunks that fill their region, list by list.
  std::vector<Chunk*> idle_regions() const;
  Chunk* at(std::uint64_t address) noexcept;
  /// Finds the chunk that ends where this one begins. Null where none does.
  Chunk* before(const Chunk* chunk) noexcept;
  /// Erases all chunks that reach into [address, +size), in use or not.
  void forget(std::uint64_t address, std::uint64_t size);
  /// Makes two neighbours parts of one region.
  static void join(Chunk* first, Chunk* second) noexcept {
    first->ends = false;
    second->begins = false;
  }
  const std::map<std::uint64_t, Chunk>& chunks() const noexcept { return chunks_; }

 private:
  using Free = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // size, address

  void insert(Chunk& chunk) { free_[chunk.list].emplace(chunk.size, chunk.address); }
  void erase(const Chunk& chunk);
  Chunk* found(std::uint64_t address) const;

  mutable std::map<std::uint64_t, Chunk> chunks_;
  std::map<std::uint64_t, Free> free_;
};

}  // namespace emm::allocators
