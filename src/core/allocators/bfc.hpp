#pragma once

#include <cstdint>
#include <optional>

#include "allocators/chunk_heap.hpp"
#include "allocators/freed_on.hpp"
#include "allocators/pool_model.hpp"

namespace emm::allocators {

/// Holds the options of a BfcPool. The defaults are JAX's.
struct BfcSettings {
  double memory_fraction = 0.75;         ///< Part of the device's total that is the limit.
  std::optional<std::uint64_t> limit{};  ///< Bytes. Replaces the fraction.
  bool preallocate = true;  ///< True: the first region is the whole limit. False: regions double.
  bool garbage_collection = false;    ///< TensorFlow's default is true.
  double fragmentation_fraction = 0;  ///< Part of the limit that a rest needs to split; 0: 128 MiB.
  // What ONNX Runtime's arena, which is the same allocator, adds.
  std::uint64_t first_region = std::uint64_t{2} << 20;  ///< Bytes, where nothing is preallocated.
  std::uint64_t dead_bytes = std::uint64_t{128} << 20;  ///< The rest from which a chunk is split.
  bool grows_as_asked = false;  ///< Regions are as large as the request, and do not double.
  std::uint64_t largest_doubled = ~std::uint64_t{0};  ///< Regions do not double beyond it.
};

/// Models XLA's BFCAllocator, which JAX and TensorFlow use, and ONNX Runtime's arena. A request
/// gets the best fit over all streams, the lowest address among equals. A chunk is split where it
/// is at least twice the request, or larger by 128 MiB or by fragmentation_fraction of the limit.
/// Regions double in size. The model has no timestamps, and it does not wait ten seconds for frees
/// of other threads as TensorFlow does.
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
