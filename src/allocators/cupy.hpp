#pragma once

#include <cstdint>
#include <optional>

#include "allocators/chunk_heap.hpp"
#include "allocators/freed_on.hpp"
#include "allocators/pool_model.hpp"

namespace emm::allocators {

struct CupySettings {
  std::uint64_t limit = 0;         ///< Bytes; 0: none.
  double limit_fraction = 0;       ///< Of the device's total; 0: none.
  bool flushes_too_large = false;  ///< Up to 14.0: also for a request that is above the limit.
};

/// CuPy's MemoryPool on one device: cupy/cuda/memory.pyx, from 13.0. An arena for each stream;
/// best fit; what is too large is always split; memory is freed into the arena that it was born in.
/// Among equal chunks CuPy takes the one whose Python object lies lowest, which no model can know:
/// here the lowest address.
class CupyPool final : public PoolModel {
 public:
  CupyPool(const CupySettings& settings, DeviceMemory& memory)
      : settings_(settings), memory_(memory) {}

  bool begin(const std::function<Room()>& room) override;
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void release_idle() override;
  void end() override { release_idle(); }
  Counts counts() const override { return memory_.counts; }

  /// Among equal chunks the next allocate() takes the one at `address`, where that is one of them.
  void prefer(std::uint64_t address) noexcept { preferred_ = address; }

  static std::uint64_t round_size(std::uint64_t size) noexcept { return round_up(size, 512); }
  const ChunkHeap& heap() const noexcept { return heap_; }

 private:
  Chunk* grow(std::uint64_t size, std::uint64_t stream);

  CupySettings settings_;
  CountedMemory memory_;
  ChunkHeap heap_;
  FreedOn freed_on_;
  std::optional<std::uint64_t> preferred_{};
};

}  // namespace emm::allocators
