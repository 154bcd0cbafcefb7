#include "driver/cuda/held_physical.hpp"

namespace emm {

void HeldPhysical::create(std::uint64_t handle, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  handles_[handle] = {.size = size, .references = 1};
  bytes_ += size;
}

void HeldPhysical::release(std::uint64_t handle) noexcept {
  const std::lock_guard lock(mutex_);
  drop(handle);
}

void HeldPhysical::map(std::uint64_t address, std::uint64_t size, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  mappings_[address] = {.size = size, .handle = handle};
  if (const auto found = handles_.find(handle); found != handles_.end()) ++found->second.references;
}

void HeldPhysical::unmap(std::uint64_t address, std::uint64_t size) noexcept {
  const std::lock_guard lock(mutex_);
  const auto end = address + size;
  while (address < end) {
    const auto mapping = mappings_.find(address);
    if (mapping == mappings_.end()) return;
    address += mapping->second.size;
    drop(mapping->second.handle);
    mappings_.erase(mapping);
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

void HeldPhysical::drop(std::uint64_t handle) noexcept {
  const auto found = handles_.find(handle);
  if (found == handles_.end() || --found->second.references != 0) return;
  bytes_ -= found->second.size;
  handles_.erase(found);
}

}  // namespace emm
