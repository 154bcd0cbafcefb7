#include "driver/sim/host_space.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "driver/sim/answer.hpp"

namespace emm::sim {
namespace {

/// Logs show host memory from this address on. It really lies there if that range is free.
constexpr std::uint64_t kShownBase = 0x4800'0000'0000;
/// The size of the range. A machine has less memory, and an address space has more room.
constexpr std::uint64_t kMost = 1_TiB;
constexpr std::uint64_t kPage = 4096;

std::uint64_t value_of(const std::byte* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }
std::byte* pointer_to(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}  // NOLINT
std::uint64_t whole_pages(std::uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

bool is_mapped(HostRange range) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  auto at = value_of(range.pointer) / page * page;
  const auto end = value_of(range.pointer) + range.size;
  if (end < value_of(range.pointer)) return false;
  std::array<unsigned char, 16384> resident;
  while (at < end) {
    const auto part = std::min<std::uint64_t>(end - at, resident.size() * page);
    if (mincore(pointer_to(at), part, resident.data()) != 0) return false;
    at += part;
  }
  return true;
}

}  // namespace

HostSpace::~HostSpace() {
  if (base_ != 0) munmap(pointer_to(base_), size_);
}

void HostSpace::reserve() {
  if (base_ != 0) return;
  // A limit on the address space (ulimit -v) may allow only a smaller range.
  for (auto size = kMost; size >= 16_MiB; size /= 4) {
    auto* range = mmap(pointer_to(kShownBase), size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    size_ = size;
    base_ = value_of(static_cast<std::byte*>(range));
    free_.release(0, size);
    return;
  }
}

HostPtr HostSpace::allocate(Kind kind, std::uint64_t size, ContextHandle owner) {
  if (size > kMost) return nullptr;
  const std::lock_guard lock(mutex_);
  reserve();
  const auto offset = free_.take(whole_pages(size));
  if (!offset) {
    if (size_ < kMost) host_memory_refused();
    return nullptr;
  }
  auto* ptr = pointer_to(base_ + *offset);
  if (mprotect(ptr, whole_pages(size), PROT_READ | PROT_WRITE) != 0) {
    free_.release(*offset, whole_pages(size));
    host_memory_refused();
    return nullptr;
  }
  blocks_[value_of(ptr)] = {.size = size, .kind = kind, .owner = owner};
  return ptr;
}

HostSpace::Freed HostSpace::free(Kind kind, HostPtr ptr) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(value_of(ptr));
  if (block == blocks_.end() || block->second.kind != kind) return {.native = kInvalidValue};
  const auto size = block->second.size;
  end(block);
  return {.size = size};
}

std::int32_t HostSpace::register_range(HostRange range, ContextHandle owner) {
  if (range.pointer == nullptr || range.size == 0 || !is_mapped(range)) return kInvalidValue;
  const std::lock_guard lock(mutex_);
  const auto begin = value_of(range.pointer);
  auto next = blocks_.lower_bound(begin);
  if (next != blocks_.end() && next->first - begin < range.size) return kAlreadyRegistered;
  if (next != blocks_.begin() && begin - std::prev(next)->first < std::prev(next)->second.size) {
    return kAlreadyRegistered;
  }
  blocks_.emplace_hint(next, begin,
                       HostBlock{.size = range.size, .kind = Kind::registered, .owner = owner});
  return 0;
}

HostSpace::Freed HostSpace::unregister(HostPtr ptr) {
  const std::lock_guard lock(mutex_);
  const auto found = around(value_of(ptr));
  if (found == blocks_.end()) return {.native = kNotRegistered};
  if (found->second.kind != Kind::registered || found->first != value_of(ptr))
    return {.native = kInvalidValue};
  const auto size = found->second.size;
  blocks_.erase(found);
  return {.size = size};
}

void HostSpace::release(ContextHandle owner) {
  const std::lock_guard lock(mutex_);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto it = block++;
    if (it->second.owner == owner) end(it);
  }
}

std::optional<HostSpace::Found> HostSpace::find(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = around(address);
  if (found == blocks_.end()) return std::nullopt;
  return Found{.base = found->first, .size = found->second.size, .kind = found->second.kind};
}

std::byte* HostSpace::bytes(std::uint64_t address, std::uint64_t size,
                            const std::unique_lock<std::mutex>&) const {
  const auto found = around(address);
  if (found == blocks_.end() || size > found->second.size - (address - found->first))
    return nullptr;
  return pointer_to(address);
}

std::uint64_t HostSpace::log_address(const std::byte* ptr) const noexcept {
  const auto value = value_of(ptr);
  const auto base = base_.load(std::memory_order_acquire);
  if (base == 0 || value - base >= size_.load(std::memory_order_relaxed)) return value;
  return kShownBase + (value - base);
}

void HostSpace::end(HostBlocks::iterator block) {
  const auto [address, what] = *block;
  blocks_.erase(block);
  if (what.kind == Kind::registered) return;
  const auto size = whole_pages(what.size);
  // A new mapping frees the memory and makes accesses fault, in one step.
  static_cast<void>(mmap(pointer_to(address), size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
  free_.release(address - base_, size);
}

HostSpace::HostBlocks::const_iterator HostSpace::around(std::uint64_t address) const {
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return blocks_.end();
  --found;
  return address - found->first < found->second.size ? found : blocks_.end();
}

}  // namespace emm::sim
