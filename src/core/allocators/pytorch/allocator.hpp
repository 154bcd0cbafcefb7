#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "allocators/device_memory.hpp"
#include "allocators/pytorch/policy.hpp"
#include "allocators/pytorch/state.hpp"

namespace emm::allocators::pytorch {

/// Models PyTorch's native allocator, rule by rule: how c10's CUDACachingAllocator 2.11 serves the
/// same requests on the same device. Not safe for several threads.
class Allocator {
 public:
  struct Counts {
    std::uint64_t retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t active = 0, peak_active = 0;  ///< Bytes of blocks that are in use or pending.
  };
  /// Called with each pending block that a retry waited for and freed.
  using Completed = std::function<void(Block&)>;

  Allocator(const Settings& settings, DeviceMemory& source) : heap_(settings), source_(source) {}

  /// Returns null if memory has run out. For a private pool, only garbage collection and the
  /// release of oversize blocks make room; the retry that releases all idle memory does not.
  Block* allocate(std::uint64_t size, std::uint64_t stream, PoolId pool = {});
  void free(Block* block);
  /// Frees a block that other streams still use. complete() ends the free.
  void free_later(Block* block);
  void complete(Block* block);
  void empty_cache();
  /// Notes that no graph and no MemPool refers to the pool any more. The next empty_cache or retry
  /// releases its idle memory.
  void set_unused(PoolId pool);
  /// Notes the same, and releases its idle memory now.
  void drop(PoolId pool);

  /// Begins with what `state` holds, at its place. Calls placed(used, block) for each block in use.
  /// REQUIRES: nothing was allocated yet.
  using Placed = std::function<void(const State::Used&, Block&)>;
  void begin_with(const State& state, const Placed& placed = {});

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
