#pragma once

#include <optional>
#include <set>

#include "allocators/pool_model.hpp"
#include "allocators/pytorch/allocator.hpp"

namespace emm::allocators::pytorch {

/// Adapts the allocator to PoolModel. A free on a stream other than the request's acts like
/// record_stream(): the block waits for the work of that stream.
class PytorchPool final : public PoolModel {
 public:
  PytorchPool(const Settings& settings, DeviceMemory& memory)
      : settings_(settings), memory_(memory) {}

  bool begin(const std::function<Room()>& room) override {
    if (settings_.fraction && settings_.total == 0) settings_.total = room().total;
    allocator_.emplace(settings_, memory_);
    return true;
  }
  std::optional<Block> allocate(std::uint64_t size, std::uint64_t stream) override {
    auto* const block = allocator_->allocate(size, stream, pool_);
    if (block == nullptr) return std::nullopt;
    return Block{.address = block->address, .size = block->size, .stream = stream, .handle = block};
  }
  bool waits(const Block& block, std::uint64_t stream) const override {
    return of(block)->stream != stream;
  }
  void free(const Block& block, std::uint64_t, std::uint64_t) override {
    allocator_->free(of(block));
  }
  void free_later(const Block& block) override { allocator_->free_later(of(block)); }
  void complete(const Block& block) override { allocator_->complete(of(block)); }
  bool can_free_later() const noexcept override { return true; }
  bool use_pool(PrivatePool pool) override {
    pool_ = id_of(pool);
    return true;
  }
  void end_pool(PrivatePool pool, bool at_once) override {
    if (id_of(pool).is_default()) return;
    if (at_once) {
      allocator_->drop(id_of(pool));
    } else {
      allocator_->set_unused(id_of(pool));
    }
  }
  void release_idle() override { allocator_->empty_cache(); }
  void end() override {
    std::set<PoolId> pools;
    for (const auto& [key, pool] : allocator_->heap().pools()) pools.insert(key.first);
    for (const auto& pool : pools) allocator_->set_unused(pool);
    allocator_->empty_cache();
    for (const auto& [address, segment] : allocator_->heap().segments()) {
      // Only ranges in which nothing could be mapped are left.
      memory_.release(address, segment->size);
    }
    allocator_.reset();
  }
  Counts counts() const override {
    const auto& counts = allocator_->counts();
    return {.retries = counts.retries,
            .ooms = counts.ooms,
            .device_allocs = counts.device_allocs,
            .device_frees = counts.device_frees,
            .reserved = allocator_->heap().reserved(),
            .peak_reserved = counts.peak_reserved,
            .active = counts.active,
            .peak_active = counts.peak_active};
  }

 private:
  static pytorch::Block* of(const Block& block) {
    return static_cast<pytorch::Block*>(block.handle);
  }

  /// PyTorch's pools have two numbers, of a capture and of a handle. A PrivatePool stands for the
  /// second.
  static PoolId id_of(PrivatePool pool) noexcept { return {0, index(pool)}; }

  Settings settings_;
  DeviceMemory& memory_;
  PoolId pool_{};                       ///< That serves requests now.
  std::optional<Allocator> allocator_;  ///< From begin() to end(); its memory is given back there.
};

}  // namespace emm::allocators::pytorch
