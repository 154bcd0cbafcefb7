#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "allocators/device_memory.hpp"
#include "base/ids.hpp"

namespace emm::allocators {

/// A pool of another library, rule by rule: what it does with the same requests over the same
/// device. Sizes in bytes; a stream is named as DeviceMemory has it. Not safe for several threads.
class PoolModel {
 public:
  /// What serves a request.
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0;    ///< As the model rounds.
    std::uint64_t stream = 0;  ///< On which it was asked for.
    void* handle = nullptr;    ///< The model's own.
  };
  struct Counts {
    std::uint64_t retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
    std::uint64_t reserved = 0, peak_reserved = 0;
    std::uint64_t active = 0, peak_active = 0;  ///< Bytes of blocks in use or pending.
  };
  /// Bytes of the device when the pool begins.
  struct Room {
    std::uint64_t free = 0, total = 0;
  };

  virtual ~PoolModel() = default;
  /// Before the first request: what the library takes when its pool is made. False where the device
  /// has no room for it. `room` asks the device.
  virtual bool begin([[maybe_unused]] const std::function<Room()>& room) { return true; }
  /// Nothing: out of memory.
  virtual std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) = 0;
  /// Does the memory stay in use after a free on `stream`, until what that stream does has passed?
  /// Then the free is a free_later(), which complete() ends.
  virtual bool waits([[maybe_unused]] const Block& block,
                     [[maybe_unused]] std::uint64_t stream) const {
    return false;
  }
  /// `size` is what was asked for, `stream` where the free is.
  virtual void free(const Block& block, std::uint64_t size, std::uint64_t stream) = 0;
  virtual void free_later([[maybe_unused]] const Block& block) {}
  virtual void complete([[maybe_unused]] const Block& block) {}
  /// Has it free_later() and complete() for any block?
  virtual bool can_free_later() const noexcept { return false; }
  /// What the library's own call releases of idle memory: empty_cache(), free_all_blocks().
  virtual void release_idle() {}
  /// As MemoryManager::use_pool().
  virtual bool use_pool([[maybe_unused]] PrivatePool pool) { return false; }
  /// As MemoryManager::end_pool().
  virtual void end_pool([[maybe_unused]] PrivatePool pool, [[maybe_unused]] bool at_once) {}
  /// Releases everything to the device. REQUIRES: no block is in use.
  virtual void end() = 0;
  virtual Counts counts() const = 0;
};

/// Bytes up to a multiple of `unit`, a power of two; what would not fit into 64 bits stays as it
/// is, and no device serves it.
constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) noexcept {
  return size > ~std::uint64_t{0} - unit ? size : (size + unit - 1) & ~(unit - 1);
}

/// Device memory, counted. What a model asks of it may fail.
class CountedMemory {
 public:
  explicit CountedMemory(DeviceMemory& memory) noexcept : memory_(memory) {}

  std::optional<std::uint64_t> ask(std::uint64_t size) {
    // No device has more addresses.
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
