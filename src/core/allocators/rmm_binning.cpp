#include "allocators/rmm_binning.hpp"

#include <algorithm>

namespace emm::allocators {

bool RmmFixedSize::grow(std::uint64_t stream) {
  const auto taken = below_.allocate(block_size_ * kBlocks, stream);
  if (!taken) return false;
  taken_.push_back(*taken);
  streams_.see(stream);
  auto& list = free_[stream];
  for (std::uint64_t i = 0; i < kBlocks; ++i) list.push_back(taken->address + i * block_size_);
  return true;
}

std::optional<std::uint64_t> RmmFixedSize::allocate(std::uint64_t stream) {
  streams_.see(stream);
  const auto take = [](std::deque<std::uint64_t>& list) {
    const auto address = list.front();
    list.pop_front();
    return address;
  };
  if (auto& own = free_[stream]; !own.empty()) return take(own);
  for (const auto other : streams_.all()) {
    auto& list = free_[other];
    if (list.empty()) continue;
    memory_.order(stream, other);
    return take(list);
  }
  if (!grow(stream)) return std::nullopt;
  return take(free_[stream]);
}

void RmmFixedSize::free(const PoolModel::Block& block, std::uint64_t stream) {
  streams_.see(stream);
  memory_.freed(stream, block.stream);
  free_[stream].push_back(block.address);
}

void RmmFixedSize::end() {
  free_.clear();
  for (const auto& block : taken_) below_.free(block, block.size, 0);
  taken_.clear();
}

std::optional<PoolModel::Block> DirectMemory::allocate(std::uint64_t size, std::uint64_t stream) {
  const auto address = memory_.ask(size);
  if (!address) {
    ++memory_.counts.ooms;
    return std::nullopt;
  }
  memory_.taken(size);
  return Block{.address = *address, .size = size, .stream = stream, .handle = nullptr};
}

void DirectMemory::free(const Block& block, std::uint64_t, std::uint64_t) {
  memory_.freed(block.size);
  memory_.release(block.address, block.size);
}

RmmBinning::RmmBinning(const RmmBinningSettings& settings, DeviceMemory& memory) {
  if (settings.over_pool) {
    below_ = std::make_unique<RmmPool>(settings.pool, memory);
  } else {
    below_ = std::make_unique<DirectMemory>(memory);
  }
  for (auto exponent = settings.min_size_exponent; exponent <= settings.max_size_exponent;
       ++exponent)
    bins_.emplace_back(std::uint64_t{1} << exponent, *below_, memory);
}

/// Each bin takes its first blocks when it is made.
bool RmmBinning::begin(const std::function<Room()>& room) {
  return below_->begin(room) &&
         std::all_of(bins_.begin(), bins_.end(), [](auto& bin) { return bin.grow(0); });
}

RmmFixedSize* RmmBinning::bin_of(std::uint64_t size) noexcept {
  const auto bin = std::find_if(bins_.begin(), bins_.end(),
                                [&](const auto& each) { return each.block_size() >= size; });
  return bin == bins_.end() ? nullptr : &*bin;
}

std::optional<PoolModel::Block> RmmBinning::allocate(std::uint64_t size, std::uint64_t stream) {
  std::optional<Block> block;
  if (auto* const bin = bin_of(size)) {
    if (const auto address = bin->allocate(stream))
      block = {.address = *address, .size = bin->block_size(), .stream = stream, .handle = bin};
  } else if (auto below = below_->allocate(size, stream)) {
    block = *below;
  }
  if (!block) {
    ++ooms_;
    return block;
  }
  active_ += block->size;
  peak_active_ = std::max(peak_active_, active_);
  return block;
}

void RmmBinning::free(const Block& block, std::uint64_t size, std::uint64_t stream) {
  active_ -= block.size;
  if (auto* const bin = bin_of(size)) return bin->free(block, stream);
  below_->free(block, size, stream);
}

void RmmBinning::end() {
  for (auto& bin : bins_) bin.end();
  below_->end();
}

PoolModel::Counts RmmBinning::counts() const {
  auto counts = below_->counts();
  counts.active = active_;
  counts.peak_active = peak_active_;
  counts.ooms = ooms_;
  return counts;
}

}  // namespace emm::allocators
