#include "driver/sim/sim_device.hpp"

#include <atomic>
#include <utility>

namespace emm::sim {
namespace {

// The upper half of the addresses: where memory of other processes is opened.
constexpr std::uint64_t kImports = SimDevice::kAddresses / 2;

std::uint64_t in_whole_pages(std::uint64_t size) {
  return (size + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

SimDevice::SimDevice(const DeviceSpec& spec, HostSpace& host)
    : spec_(spec),
      base_(kFirstAddress + static_cast<std::uint64_t>(spec.ordinal) * kAddresses),
      host_(host),
      memory_(base_, static_cast<std::uint32_t>((spec.total - spec.reserved) / kPageBytes),
              spec.addresses) {}

ContextHandle SimDevice::retain() {
  static std::atomic<std::uint64_t> last{0};
  const std::lock_guard lock(mutex_);
  if (context_.value == 0) {
    context_.value = last.fetch_add(1, std::memory_order_relaxed) + 1;
    fit_.store(context_.value, std::memory_order_release);
  }
  return context_;
}

std::int32_t SimDevice::state_of_unfit(ContextHandle context) const {
  const std::lock_guard lock(mutex_);
  return state_locked(context);
}

void SimDevice::fault(ContextHandle context) {
  const std::lock_guard lock(mutex_);
  if (context != context_) return;
  fault_ = kIllegalAddress;
  fit_.store(0, std::memory_order_release);
}

Answer<Nothing> SimDevice::reset(ContextHandle context) {
  const std::lock_guard lock(mutex_);
  if (context != context_) return {.native = kContextDestroyed};
  host_.release(context);
  for (const auto& [address, block] : memory_.blocks()) buried_.insert(address);
  memory_.clear();
  imports_.clear();
  libraries_.clear();
  leaving_.clear();
  context_ = {};
  fault_ = kSuccess;
  fit_.store(0, std::memory_order_release);
  peers_ = 0;
  return {};
}

Answer<DevicePtr> SimDevice::mem_alloc(ContextHandle context, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  if (size == 0) return {.native = kInvalidValue};
  const auto address = memory_.allocate(size);
  if (address == 0) return {.native = kOutOfMemory, .value = {}, .size = size};
  if (!buried_.empty()) buried_.erase(address);
  return {.native = kSuccess, .value = {address}, .size = size};
}

Answer<Nothing> SimDevice::mem_free(ContextHandle context, DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  if (context.value != 0 && state_locked(context) != 0) return {.native = state_locked(context)};
  if (!leaving_.empty() && leaving_.count(ptr.value) != 0) return {.native = kInvalidValue};
  if (const auto size = memory_.free(ptr.value); size != 0)
    return {.native = kSuccess, .value = {}, .size = size};
  // Measured: a free of an address from before the reset returns 0, once a context is current
  // again.
  if (buried_.erase(ptr.value) != 0) return {};
  return {.native = kInvalidValue};
}

Answer<MemoryInfo> SimDevice::mem_get_info(ContextHandle context) const {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  const auto free = spec_.total - spec_.reserved - memory_.held_bytes();
  return {.native = kSuccess, .value = {.free = free, .total = spec_.total}};
}

Answer<AddressRange> SimDevice::mem_get_address_range(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  if (const auto found = memory_.find(ptr.value); found.block != nullptr) {
    return {.native = kSuccess, .value = {.base = {found.base}, .size = found.block->size}};
  }
  if (const auto found = import_around(ptr.value); found != imports_.end()) {
    return {.native = kSuccess, .value = {.base = {found->first}, .size = found->second.size}};
  }
  return {.native = kNotFound};
}

std::uint64_t SimDevice::held_bytes(ContextHandle context) const {
  const std::lock_guard lock(mutex_);
  return context == context_ ? memory_.held_bytes() : 0;
}

std::uint64_t SimDevice::largest_free_bytes(ContextHandle context) const {
  const std::lock_guard lock(mutex_);
  return context == context_ ? memory_.largest_free_bytes() : 0;
}

std::int32_t SimDevice::take_pages(ContextHandle context, std::uint64_t pages) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return native;
  return memory_.take_unplaced(pages) ? kSuccess : kOutOfMemory;
}

void SimDevice::release_pages(ContextHandle context, std::uint64_t pages) {
  const std::lock_guard lock(mutex_);
  if (context == context_) memory_.release_unplaced(pages);
}

Answer<IpcMemHandle> SimDevice::ipc_get_mem_handle(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(ptr.value);
  if (found.block == nullptr) return {.native = kInvalidValue};
  const auto* shared = content_of(*found.block).share(found.block->size);
  if (shared == nullptr) return {.native = kOutOfMemory};
  return {.native = kSuccess, .value = shared->handle()};
}

Answer<DevicePtr> SimDevice::ipc_open_mem_handle(ContextHandle context,
                                                 const IpcMemHandle& handle) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  if (made_here(handle)) return {.native = kInvalidContext};
  auto place = base_ + kImports;
  for (auto& [address, import] : imports_) {
    if (import.handle == handle) {
      ++import.opened;
      return {.native = kSuccess, .value = {address}, .size = import.size};
    }
  }
  auto memory = SharedMemory::open(handle);
  if (!memory) return {.native = kInvalidValue};
  const auto size = memory->bytes().size();
  for (const auto& [address, import] : imports_) {
    if (address - place >= size) break;
    place = address + in_whole_pages(import.size);
  }
  if (place + size > base_ + kAddresses) return {.native = kOutOfMemory};
  imports_.emplace(place, Import{.handle = handle,
                                 .size = size,
                                 .opened = 1,
                                 .content = Content(spec_.fresh, std::move(*memory))});
  return {.native = kSuccess, .value = {place}, .size = size};
}

Answer<Nothing> SimDevice::ipc_close_mem_handle(ContextHandle context, DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  const auto found = imports_.find(ptr.value);
  if (found == imports_.end()) return {.native = kInvalidValue};
  if (--found->second.opened == 0) imports_.erase(found);
  return {};
}

Answer<Nothing> SimDevice::begin_free(ContextHandle context, DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  if (context.value != 0 && state_locked(context) != 0) return {.native = state_locked(context)};
  const auto found = memory_.find(ptr.value);
  const bool begins = found.block != nullptr && found.base == ptr.value;
  return {.native = begins && leaving_.insert(ptr.value).second ? kSuccess : kInvalidValue};
}

void SimDevice::end_free(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  if (leaving_.erase(ptr.value) != 0) memory_.free(ptr.value);
}

// Loading is lazy: CUDA checks an image only when it is used.
Answer<LibraryHandle> SimDevice::library_load(ContextHandle context) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  memory_.load_kernels();
  libraries_.insert(libraries_.end(), ++last_library_);
  return {.native = kSuccess, .value = {last_library_}};
}

Answer<Nothing> SimDevice::library_unload(ContextHandle context, LibraryHandle library) {
  const std::lock_guard lock(mutex_);
  if (const auto native = state_locked(context); native != 0) return {.native = native};
  return {.native = libraries_.erase(library.value) != 0 ? kSuccess : kInvalidHandle};
}

SimDevice::ContentAt SimDevice::content_at(std::uint64_t address, std::uint64_t size) {
  if (const auto found = memory_.find(address); found.block != nullptr) {
    const auto offset = address - found.base;
    if (size > found.block->size - offset) return {};
    return {&content_of(*found.block), offset};
  }
  if (const auto found = import_around(address); found != imports_.end()) {
    const auto offset = address - found->first;
    if (size > found->second.size - offset) return {};
    return {&found->second.content, offset};
  }
  return {};
}

SimDevice::Imports::iterator SimDevice::import_around(std::uint64_t address) {
  auto found = imports_.upper_bound(address);
  if (found == imports_.begin()) return imports_.end();
  --found;
  return address - found->first < found->second.size ? found : imports_.end();
}

Content& SimDevice::content_of(DeviceMemory::DeviceBlock& block) {
  if (!block.content) block.content = std::make_unique<Content>(spec_.fresh);
  return *block.content;
}

}  // namespace emm::sim
