#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "driver/sim/memory_pool.hpp"

namespace emm::sim {

/// The stream-ordered pools of a platform, and their allocations. Results are native codes. Any
/// thread may call. REQUIRES: the state of each asker's context is 0.
class PoolTable {
 public:
  explicit PoolTable(SimPlatform& platform) noexcept : platform_(platform) {}

  PoolHandle create(Asker asker, std::uint64_t max_size);
  /// Allocations of the pool stay valid until they are freed. Refuses default pools.
  std::int32_t destroy(PoolHandle pool);
  PoolHandle default_pool(Asker asker);
  std::int32_t trim(PoolHandle pool, std::uint64_t keep);
  std::int32_t set(PoolHandle pool, PoolAttribute attribute, std::uint64_t value);
  Answer<std::uint64_t> get(PoolHandle pool, PoolAttribute attribute);

  Answer<DevicePtr> allocate(Asker asker, std::uint64_t size, PoolHandle pool, StreamHandle stream);
  /// cuMemFreeAsync of memory from a pool. Returns invalid value for other memory.
  std::int32_t free(Asker asker, DevicePtr ptr, StreamHandle stream);
  /// cuMemFree of memory from a pool. Waits for no work, and releases idle memory (measured).
  Answer<Nothing> free(DevicePtr ptr);
  /// Finds the allocation that contains `ptr`. Free memory of a pool is not found.
  struct Found {
    std::int32_t native = kNotFound;
    AddressRange range;
  };
  Found find(DevicePtr ptr) const;
  /// Answers whether an address belongs to a pool.
  bool owns(DevicePtr ptr) const;

  /// Releases idle memory. Called after the host has waited for a stream, an event or the context
  /// of a device.
  void synchronized(int device) {
    if (any_.load(std::memory_order_relaxed)) release_idle(device);
  }
  /// Ends the `recent` marks of a stream. Called after the legacy default stream has filled memory
  /// while the host waited.
  void worked(Asker asker) {
    if (any_.load(std::memory_order_relaxed)) end_recent(asker);
  }
  /// Ends the pools of a device, before its virtual memory ends.
  void drop(int device);

 private:
  struct PoolBlock {
    std::uint64_t size = 0;  // as requested
    std::uint64_t pool = 0;
  };
  MemoryPool* pool_of(PoolHandle handle);
  void end(std::map<std::uint64_t, PoolBlock>::iterator block, Point before, Point point);
  void release_idle(int device);
  void end_recent(Asker asker);

  SimPlatform& platform_;
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, MemoryPool> pools_;  // including destroyed pools that still hold memory
  std::map<std::uint64_t, MemoryPool*> live_;  // pools with a handle
  std::map<int, std::uint64_t> defaults_;      // by device
  std::map<std::uint64_t, PoolBlock> blocks_;  // by address
};

}  // namespace emm::sim
