#pragma once

#include <cstdint>
#include <optional>

#include "allocators/chunk_heap.hpp"
#include "allocators/freed_on.hpp"
#include "allocators/pool_model.hpp"

namespace emm::allocators {

struct CupySettings {
  std::uint64_t limit = 0;         ///< Bytes; 0 means no limit.
  double limit_fraction = 0;       ///< Part of the device's total; 0 means no limit.
  bool flushes_too_large = false;  ///< CuPy up to 14.0 flushes even for a request above the limit.
};

/// Models CuPy's MemoryPool on one device (cupy/cuda/memory.pyx, from 13.0). Each stream has an
/// arena, and the best fit serves. A chunk larger than the request is always split, and is freed
/// into the arena that it came from. Among equal chunks CuPy takes the one whose Python object has
/// the lowest address. A model cannot know that, so this one takes the chunk with the lowest
/// address.
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

  /// Among equal chunks, the next allocate() takes the one at `address`, if it is one of them.
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
