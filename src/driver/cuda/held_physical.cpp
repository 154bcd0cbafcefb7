#include "driver/cuda/held_physical.hpp"

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
  std::vector<HeldMapping> gone;
  auto at = address;
  while (at < address + size) {
    const auto mapping = mappings_.find(at);
    if (mapping == mappings_.end()) return {};
    gone.push_back(mapping->second);
    at += mapping->second.size;
  }
  if (at != address + size) return {};
  for (const auto& mapping : gone) {
    drop(*mapping.block);
    mappings_.erase(mapping.address);
  }
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
