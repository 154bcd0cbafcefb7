#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "allocators/rmm_pool.hpp"

namespace emm::allocators {

/// Models RMM's fixed_size_memory_resource: blocks of one size. It requests 128 blocks at a time
/// from the resource below and serves them in ascending order. A freed block goes to the end of its
/// stream's list.
class RmmFixedSize {
 public:
  RmmFixedSize(std::uint64_t block_size, PoolModel& below, DeviceMemory& memory)
      : block_size_(block_size), below_(below), memory_(memory) {}

  bool grow(std::uint64_t stream);
  std::optional<std::uint64_t> allocate(std::uint64_t stream);
  void free(const PoolModel::Block& block, std::uint64_t stream);
  /// Releases everything to the resource below.
  void end();
  std::uint64_t block_size() const noexcept { return block_size_; }

 private:
  // That RMM's fixed_size_memory_resource makes at a time.
  static constexpr std::uint64_t kBlocks = 128;

  std::uint64_t block_size_;
  PoolModel& below_;
  DeviceMemory& memory_;
  std::map<std::uint64_t, std::deque<std::uint64_t>> free_;  // by stream
  StreamOrder streams_;
  std::vector<PoolModel::Block> taken_;
};

/// Models cuda_memory_resource, the device itself.
class DirectMemory final : public PoolModel {
 public:
  explicit DirectMemory(DeviceMemory& memory) : memory_(memory) {}
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void end() override {}
  Counts counts() const override { return memory_.counts; }

 private:
  CountedMemory memory_;
};

struct RmmBinningSettings {
  unsigned min_size_exponent = 18, max_size_exponent = 22;
  bool over_pool = true;  ///< False: over the device itself.
  RmmPoolSettings pool{};
};

/// Models RMM's binning_memory_resource: a fixed_size_memory_resource for each power of two, and
/// the resource below for larger requests. By default it lies over a pool, as in RMM's benchmarks.
class RmmBinning final : public PoolModel {
 public:
  RmmBinning(const RmmBinningSettings& settings, DeviceMemory& memory);

  bool begin(const std::function<Room()>& room) override;
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override;
  void free(const Block& block, std::uint64_t size, std::uint64_t stream) override;
  void end() override;
  Counts counts() const override;

 private:
  RmmFixedSize* bin_of(std::uint64_t size) noexcept;

  std::unique_ptr<PoolModel> below_;
  std::deque<RmmFixedSize> bins_;
  std::uint64_t active_ = 0, peak_active_ = 0, ooms_ = 0;
};

}  // namespace emm::allocators
