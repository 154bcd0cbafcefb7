#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "allocators/device_memory.hpp"
#include "allocators/pytorch/policy.hpp"

namespace emm::allocators::pytorch {

/// PyTorch's native allocator, rule by rule: what c10's CUDACachingAllocator 2.11 does with the
/// same requests over the same device. Not safe for several threads.
class Allocator {
 public:
  struct Counts {
    std::uint64_t retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t active = 0, peak_active = 0;  ///< Bytes of blocks that are in use or pending.
  };
  /// Told of each block whose free completed although nobody said so: a retry waited for it.
  using Completed = std::function<void(Block&)>;

  Allocator(const Settings& settings, DeviceMemory& source) : heap_(settings), source_(source) {}

  /// Null: out of memory. While a private pool serves, nothing is released for it but by rules 9
  /// and 10.
  Block* allocate(std::uint64_t size, std::uint64_t stream, PoolId pool = {});
  void free(Block* block);
  /// The free of a block that other streams still use; complete() ends it.
  void free_later(Block* block);
  void complete(Block* block);
  void empty_cache();
  /// No graph and no MemPool refers to the pool any more: its idle memory is released at the next
  /// empty_cache or retry.
  void set_unused(PoolId pool);
  /// The same, and its idle memory is released now.
  void drop(PoolId pool);

  const Heap& heap() const noexcept { return heap_; }
  const Counts& counts() const noexcept { return counts_; }
  void on_completed(Completed completed) { completed_ = std::move(completed); }

 private:
  Block* grow(const Wanted& wanted);
  Block* grow_range(const Wanted& wanted);
  void release(const std::vector<Block*>& blocks);
  void release(const std::vector<Idle>& idle);
  void release_all();
  void note_reserved();

  Heap heap_;
  DeviceMemory& source_;
  Counts counts_;
  std::vector<Block*> pending_;
  Completed completed_;
};

}  // namespace emm::allocators::pytorch
