#include "driver/cuda/held_physical.hpp"

#include <iterator>
#include <utility>

namespace emm {

void HeldPhysical::create(std::uint64_t handle, std::uint64_t size) {
  auto block = std::make_shared<PhysicalBlock>(PhysicalBlock{.size = size});
  restore(handle, std::move(block));
}

std::shared_ptr<HeldPhysical::PhysicalBlock> HeldPhysical::release(std::uint64_t handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return nullptr;
  auto block = std::move(found->second);
  handles_.erase(found);
  drop(*block);
  return block;
}

void HeldPhysical::restore(std::uint64_t handle, std::shared_ptr<PhysicalBlock> block) {
  const std::lock_guard lock(mutex_);
  take(*block);
  handles_[handle] = std::move(block);
}

void HeldPhysical::map(std::uint64_t address, std::uint64_t size, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  take(*found->second);
  mappings_[address] = {.address = address, .size = size, .block = found->second};
}

std::vector<HeldPhysical::HeldMapping> HeldPhysical::unmap(std::uint64_t address,
                                                           std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (size > ~address) return {};  // more than the space of addresses
  const auto ends_within = [&](const HeldMapping& mapping, std::uint64_t end) {
    return mapping.address + mapping.size <= end;
  };
  const auto first = mappings_.lower_bound(address);
  const auto last = mappings_.lower_bound(address + size);
  const bool is_whole =
      (first == mappings_.begin() || ends_within(std::prev(first)->second, address)) &&
      (first == last || ends_within(std::prev(last)->second, address + size));
  if (!is_whole) return {};
  std::vector<HeldMapping> gone;
  for (auto mapping = first; mapping != last; ++mapping) {
    drop(*mapping->second.block);
    gone.push_back(mapping->second);
  }
  mappings_.erase(first, last);
  return gone;
}

void HeldPhysical::restore(const std::vector<HeldMapping>& mappings) {
  const std::lock_guard lock(mutex_);
  for (const auto& mapping : mappings) {
    take(*mapping.block);
    mappings_[mapping.address] = mapping;
  }
}

void HeldPhysical::clear() noexcept {
  const std::lock_guard lock(mutex_);
  handles_.clear();
  mappings_.clear();
  bytes_ = 0;
}

std::uint64_t HeldPhysical::bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void HeldPhysical::take(PhysicalBlock& block) noexcept {
  if (block.references++ == 0) bytes_ += block.size;
}

void HeldPhysical::drop(PhysicalBlock& block) noexcept {
  if (--block.references == 0) bytes_ -= block.size;
}

}  // namespace emm
