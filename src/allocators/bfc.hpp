#pragma once

#include <cstdint>
#include <optional>

#include "allocators/chunk_heap.hpp"
#include "allocators/freed_on.hpp"
#include "allocators/pool_model.hpp"

namespace emm::allocators {

/// JAX's defaults.
struct BfcSettings {
  double memory_fraction = 0.75;         ///< Of the device's total.
  std::optional<std::uint64_t> limit{};  ///< Bytes, instead of the fraction.
  bool preallocate = true;            ///< The limit at the first request; else regions that double.
  bool garbage_collection = false;    ///< TensorFlow's default is true.
  double fragmentation_fraction = 0;  ///< A remainder above this part of the limit is split off.
};

/// XLA's BFCAllocator, which JAX and TensorFlow use: best fit over all streams, ties to the lowest
/// address; a chunk is split where it is twice the request or 128 MiB larger; regions that double.
/// Without timestamps, and without the ten seconds that TensorFlow waits for frees of other
/// threads.
class BfcPool final : public PoolModel {
 public:
  BfcPool(const BfcSettings& settings, DeviceMemory& memory)
      : settings_(settings), memory_(memory) {}

  bool begin(const std::function<Room()>& room) override;
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void end() override;
  Counts counts() const override { return memory_.counts; }

  const ChunkHeap& heap() const noexcept { return heap_; }

 private:
  bool extend(std::uint64_t size);
  bool collect(std::uint64_t size);
  bool splits(const Chunk& chunk, std::uint64_t size) const noexcept;

  BfcSettings settings_;
  CountedMemory memory_;
  ChunkHeap heap_;
  std::uint64_t limit_ = 0, region_ = 0;
  FreedOn freed_on_;
};

}  // namespace emm::allocators
