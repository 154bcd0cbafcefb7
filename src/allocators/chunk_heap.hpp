#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace emm::allocators {

/// A piece of what the device gave in one request, a region.
struct Chunk {
  std::uint64_t address = 0, size = 0;
  std::uint64_t list = 0;  ///< Which list holds it while it is free.
  bool is_free = false;
  bool begins = false, ends = false;  ///< Its region.

  bool is_region() const noexcept { return begins && ends; }
};

/// The chunks of regions, and lists of those that are free. Free neighbours of one region and one
/// list are one chunk. It decides nothing but where the best fit lies. Not safe for several
/// threads.
class ChunkHeap {
 public:
  /// A region that is one free chunk. A chunk stays where it is until it is merged or removed.
  Chunk* add_region(std::uint64_t address, std::uint64_t size, std::uint64_t list);
  /// A free chunk that is all of a region.
  void remove_region(Chunk* chunk);
  /// The smallest of `size` bytes or more, the lowest address among equals; null if none serves.
  Chunk* best_fit(std::uint64_t list, std::uint64_t size) const;
  /// All of that size, by address.
  std::vector<Chunk*> all_of(std::uint64_t list, std::uint64_t size) const;
  /// A free chunk without its first `bytes`, which become a chunk of their own.
  Chunk* cut_front(Chunk* chunk, std::uint64_t bytes);
  /// The chunk is in use. Where `splits`, what is beyond `size` bytes stays free in its list.
  Chunk* take(Chunk* chunk, std::uint64_t size, bool splits);
  /// The chunk is free in `list`, merged with its neighbours; returns what it is part of.
  Chunk* release(Chunk* chunk, std::uint64_t list);
  /// All that is free in `from` is moved, and merged there.
  void move_all(std::uint64_t from, std::uint64_t to);
  bool is_empty(std::uint64_t list) const;
  /// Free chunks that are all of a region: of every list, in its order.
  std::vector<Chunk*> idle_regions() const;
  Chunk* at(std::uint64_t address) noexcept;
  /// The chunk that ends where this one begins; null where none does.
  Chunk* before(const Chunk* chunk) noexcept;
  /// Drops what lies in [address, +size), in use or not, as if it had never been.
  void forget(std::uint64_t address, std::uint64_t size);
  /// Two neighbours are of one region.
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
