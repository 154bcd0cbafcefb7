#include "managers/host_cache.hpp"

#include <algorithm>
#include <bit>

#include "base/text.hpp"
#include "base/units.hpp"
#include "driver/call.hpp"
#include "managers/host_only.hpp"

namespace emm {

HostCache::Key HostCache::key_of(std::uint64_t size, unsigned flags) noexcept {
  return {flags, static_cast<int>(std::bit_width(size - 1))};
}

Result<HostMemory> HostCache::allocate(std::uint64_t size, HostAllocFlags flags) {
  const auto rounded = allocators::pytorch::round_host_size(settings_, size);
  const auto key = key_of(rounded, flags.bits());
  std::unique_lock lock(mutex_);
  auto block = take_free(key, rounded);
  if (!block) {
    lock.unlock();
    auto made = make(rounded, flags);
    if (!made) return std::move(made).error();
    block = *made;
    lock.lock();
    auto& list = lists_[key];
    if (list.free.capacity() < ++list.blocks) list.free.reserve(2 * list.blocks);
  }
  const auto kind = flags.mapped ? MemoryKind::host_mapped : MemoryKind::host_pinned;
  const auto cookie = records_.add({.address = block->address, .size = size, .kind = kind});
  if (!cookie) {
    deallocations_.release_slot();
    return address_is_alive(block->address);
  }
  live_[block->address] = *block;
  ++requests_;
  bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  Lifetime lifetime({.run = finalize, .self = this, .cookie = *cookie}, epoch_.mark());
  const HostRange range{.pointer = reinterpret_cast<HostPtr>(block->address), .size = size};
  if (flags.mapped) return HostMemory(MappedMemory(range, {block->on_device}, std::move(lifetime)));
  return HostMemory(PinnedMemory(range, std::move(lifetime)));
}

std::optional<HostCache::HostBlock> HostCache::take_free(const Key& key, std::uint64_t size) {
  const auto list = lists_.find(key);
  if (list == lists_.end()) return std::nullopt;
  auto& free = list->second.free;
  const auto found = std::find_if(free.rbegin(), free.rend(),
                                  [&](const HostBlock& each) { return each.size >= size; });
  if (found == free.rend()) return std::nullopt;
  const auto block = *found;
  free.erase(std::next(found).base());
  return block;
}

/// Takes a block from the reserve segment if that has room, else from the driver.
Result<HostCache::HostBlock> HostCache::make(std::uint64_t size, HostAllocFlags flags) {
  if (settings_.reserve_segment != 0) {
    std::unique_lock lock(mutex_);
    if (!std::exchange(reserve_.asked, true)) {
      lock.unlock();
      const auto made = ask(settings_.reserve_segment, flags);
      lock.lock();
      if (made) reserve_.block = *made;
    }
    HostBlock block{.address = 0, .size = size, .on_device = 0, .flags = flags.bits()};
    if (take_reserved(block)) return block;
  }
  return ask(size, flags);
}

bool HostCache::take_reserved(HostBlock& block) {
  constexpr std::uint64_t kPage = 4096;  // bytes: the driver registers host memory in whole pages
  const auto& [whole, used, asked] = reserve_;
  if (whole.flags != block.flags || whole.size - used < block.size) return false;
  block.address = whole.address + used;
  if (whole.on_device != 0) block.on_device = whole.on_device + used;
  block.reserved = true;
  reserve_.used = std::min(whole.size, (used + block.size + kPage - 1) / kPage * kPage);
  return true;
}

Result<HostCache::HostBlock> HostCache::ask(std::uint64_t size, HostAllocFlags flags) {
  auto pointer = driver_->mem_host_alloc(size, flags);
  if (!pointer && pointer.error().code == Errc::out_of_memory) {
    if (deallocations_.clear()) pointer = driver_->mem_host_alloc(size, flags);
  }
  if (!pointer) return std::move(pointer).error();
  HostBlock block{.address = reinterpret_cast<std::uint64_t>(*pointer),
                  .size = size,
                  .on_device = 0,
                  .flags = flags.bits()};
  deallocations_.reserve_slot();  // now, so that a finalizer need not allocate
  if (flags.mapped) {
    const auto address = driver_->mem_host_get_device_pointer(*pointer);
    if (!address) {
      release(block);
      return address.error();
    }
    block.on_device = address->value;
  }
  const std::lock_guard lock(mutex_);
  ++asked_;
  held_ += size;
  peak_held_ = std::max(peak_held_, held_);
  return block;
}

void HostCache::release(const HostBlock& block) noexcept {
  if (!deallocations_.add(Call::mem_free_host, block.address, block.size)) return;
}

void HostCache::finalize(void* self, std::uint64_t cookie, StreamHandle) noexcept {
  auto& cache = *static_cast<HostCache*>(self);
  std::unique_lock lock(cache.mutex_);
  const auto record = cache.records_.take(cookie);
  if (!record) return;
  const auto found = cache.live_.find(record->address);
  const auto block = found->second;
  cache.live_.erase(found);
  cache.bytes_ -= record->size;
  auto& list = cache.lists_.find(key_of(block.size, block.flags))->second;
  if (block.reserved || block.size <= cache.settings_.max_cached_size) {
    list.free.push_back(block);
    return;
  }
  --list.blocks;
  cache.held_ -= block.size;
  lock.unlock();
  cache.release(block);
}

void HostCache::end_all() noexcept {
  std::unique_lock lock(mutex_);
  epoch_.advance();
  std::vector<HostBlock> blocks;
  const auto mark = records_.mark();
  while (const auto record = records_.take_first(mark)) {
    const auto found = live_.find(record->address);
    blocks.push_back(found->second);
    live_.erase(found);
  }
  for (const auto& [key, list] : lists_)
    blocks.insert(blocks.end(), list.free.begin(), list.free.end());
  if (reserve_.block.size != 0) blocks.push_back(reserve_.block);
  lists_.clear();
  reserve_ = {};
  bytes_ = held_ = 0;
  lock.unlock();
  for (const auto& block : blocks) {
    if (!block.reserved) release(block);
  }
}

std::string HostCache::report() const {
  const std::lock_guard lock(mutex_);
  if (requests_ == 0) return {};
  return text::format(
      "page-locked memory: {} requests, {} at most live; {} calls of cuMemHostAlloc, {} at most "
      "held\n",
      text::grouped(requests_), units::bytes(peak_bytes_), text::grouped(asked_),
      units::bytes(peak_held_));
}

}  // namespace emm
