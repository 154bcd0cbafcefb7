#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocators/chunk_heap.hpp"
#include "allocators/pool_model.hpp"

namespace emm::allocators {

inline constexpr std::uint64_t kRmmAlignment = 256;  // bytes: rmm::CUDA_ALLOCATION_ALIGNMENT

/// Streams in the order of their first use. RMM orders them by the addresses of its events, which
/// change from run to run.
class StreamOrder {
 public:
  void see(std::uint64_t stream);
  const std::vector<std::uint64_t>& all() const noexcept { return streams_; }

 private:
  std::vector<std::uint64_t> streams_;
};

struct RmmPoolSettings {
  std::optional<std::uint64_t> initial_size{};  ///< Default: half of the free bytes.
  std::optional<std::uint64_t> maximum_size{};
};

/// Models RMM's pool_memory_resource. Each stream that frees has a free list in the order of
/// addresses, and the best fit serves. Memory of another stream serves after a wait for that
/// stream's event. The pool doubles, or grows by half of what a maximum leaves. It releases nothing
/// to the device.
class RmmPool final : public PoolModel {
 public:
  RmmPool(const RmmPoolSettings& settings, DeviceMemory& memory)
      : settings_(settings), memory_(memory) {}

  bool begin(const std::function<Room()>& room) override;
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void end() override;
  Counts counts() const override { return memory_.counts; }

  const ChunkHeap& heap() const noexcept { return heap_; }

 private:
  Chunk* find(std::uint64_t size, std::uint64_t stream);
  Chunk* grow(std::uint64_t size, std::uint64_t stream);
  Chunk* ask(std::uint64_t most, std::uint64_t least, std::uint64_t stream);

  RmmPoolSettings settings_;
  CountedMemory memory_;
  ChunkHeap heap_;
  StreamOrder streams_;
};

}  // namespace emm::allocators
