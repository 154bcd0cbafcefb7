#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "allocators/device_memory.hpp"
#include "base/ids.hpp"

namespace emm::allocators {

/// Models a pool of another library, rule by rule: how it serves the same requests on the same
/// device. Sizes are in bytes. Streams are named as in DeviceMemory. Not safe for several threads.
class PoolModel {
 public:
  /// The memory that serves a request.
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0;    ///< Rounded by the model's rules.
    std::uint64_t stream = 0;  ///< The stream of the request.
    void* handle = nullptr;    ///< For the model's own use.
  };
  struct Counts {
    std::uint64_t retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
    std::uint64_t reserved = 0, peak_reserved = 0;
    std::uint64_t active = 0, peak_active = 0;  ///< Bytes of blocks in use or pending.
  };
  /// Says what the device has when the pool begins, in bytes.
  struct Room {
    std::uint64_t free = 0, total = 0;
  };

  virtual ~PoolModel() = default;
  /// Takes the memory that the library takes when its pool is made. Called before the first
  /// request. Returns false if the device has no room for it. `room` asks the device.
  virtual bool begin([[maybe_unused]] const std::function<Room()>& room) { return true; }
  /// Returns nothing where memory has run out.
  virtual std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) = 0;
  /// Answers whether the memory stays in use after a free on `stream` until that stream's work is
  /// done. The caller then calls free_later(), and complete() when the work is done.
  virtual bool waits([[maybe_unused]] const Block& block,
                     [[maybe_unused]] std::uint64_t stream) const {
    return false;
  }
  /// Frees the block on `stream`. `size` is the size that was asked for.
  virtual void free(const Block& block, std::uint64_t size, std::uint64_t stream) = 0;
  virtual void free_later([[maybe_unused]] const Block& block) {}
  virtual void complete([[maybe_unused]] const Block& block) {}
  /// Answers whether the model offers free_later() and complete() for any block.
  virtual bool can_free_later() const noexcept { return false; }
  /// Releases idle memory as the library's own call does: empty_cache(), free_all_blocks().
  virtual void release_idle() {}
  /// Does what MemoryManager::use_pool() does.
  virtual bool use_pool([[maybe_unused]] PrivatePool pool) { return false; }
  /// Does what MemoryManager::end_pool() does.
  virtual void end_pool([[maybe_unused]] PrivatePool pool, [[maybe_unused]] bool at_once) {}
  /// Releases everything to the device. REQUIRES: no block is in use.
  virtual void end() = 0;
  virtual Counts counts() const = 0;
};

/// Rounds up to a multiple of `unit`, a power of two. A size that would overflow 64 bits stays as
/// it is; no device serves it.
constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) noexcept {
  return size > ~std::uint64_t{0} - unit ? size : (size + unit - 1) & ~(unit - 1);
}

/// Counts what a model takes from a DeviceMemory and releases to it.
class CountedMemory {
 public:
  explicit CountedMemory(DeviceMemory& memory) noexcept : memory_(memory) {}

  std::optional<std::uint64_t> ask(std::uint64_t size) {
    // No device has so many addresses.
    if (size > std::uint64_t{1} << 47) return std::nullopt;
    const auto address = memory_.allocate(size);
    if (!address) return address;
    ++counts.device_allocs;
    counts.reserved += size;
    counts.peak_reserved = std::max(counts.peak_reserved, counts.reserved);
    return address;
  }
  void release(std::uint64_t address, std::uint64_t size) {
    memory_.free(address, size);
    ++counts.device_frees;
    counts.reserved -= size;
  }
  void taken(std::uint64_t size) noexcept {
    counts.active += size;
    counts.peak_active = std::max(counts.peak_active, counts.active);
  }
  void freed(std::uint64_t size) noexcept { counts.active -= size; }
  DeviceMemory& operator*() noexcept { return memory_; }
  DeviceMemory* operator->() noexcept { return &memory_; }

  PoolModel::Counts counts{};

 private:
  DeviceMemory& memory_;
};

}  // namespace emm::allocators
