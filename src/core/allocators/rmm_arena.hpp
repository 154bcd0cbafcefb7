#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "allocators/rmm_pool.hpp"

namespace emm::allocators {

/// A part of an arena, with its free blocks. The first free block that fits serves.
class Superblock {
 public:
  Superblock() = default;
  Superblock(std::uint64_t address, std::uint64_t size) : address_(address), size_(size) {
    free_[address] = size;
  }
  std::uint64_t address() const noexcept { return address_; }
  std::uint64_t size() const noexcept { return size_; }
  bool holds(std::uint64_t address) const noexcept { return address - address_ < size_; }
  bool is_free() const noexcept { return free_.size() == 1 && free_.begin()->second == size_; }
  bool fits(std::uint64_t size) const noexcept;
  std::optional<std::uint64_t> take(std::uint64_t size);
  void release(std::uint64_t address, std::uint64_t size);

 private:
  std::uint64_t address_ = 0, size_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // size by address
};

/// Superblocks by address.
using Superblocks = std::map<std::uint64_t, Superblock>;

/// Models RMM's arena_memory_resource, which takes one piece of the device's memory when it is
/// made. The arena of each stream acquires superblocks from it. The global arena serves requests
/// above 1 MiB. First fit by address.
class RmmArena final : public PoolModel {
 public:
  RmmArena(std::optional<std::uint64_t> arena_size, DeviceMemory& memory)
      : arena_size_(arena_size), memory_(memory) {}

  bool begin(const std::function<Room()>& room) override;
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void end() override;
  Counts counts() const override { return memory_.counts; }

  static constexpr std::uint64_t kSuperblock = std::uint64_t{1} << 20;  ///< The minimum size.

 private:
  std::optional<std::uint64_t> find(std::uint64_t size, std::uint64_t stream);
  std::optional<Superblock> acquire(std::uint64_t size);
  void give(Superblock superblock);
  void defragment();
  bool release(Superblocks& among, std::uint64_t address, std::uint64_t size);

  std::optional<std::uint64_t> arena_size_;
  CountedMemory memory_;
  std::uint64_t address_ = 0;
  Superblocks global_;
  std::map<std::uint64_t, Superblocks> own_;  // by stream
};

}  // namespace emm::allocators
