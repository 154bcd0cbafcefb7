#include "driver/sim/virtual_memory.hpp"

#include <bit>
#include <iterator>

#include "driver/call.hpp"
#include "driver/sim/latency.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm::sim {
namespace {

bool is_whole(std::uint64_t value) { return value % kPageBytes == 0; }

}  // namespace

VirtualMemory::VirtualMemory(SimPlatform& platform, Pattern fresh)
    : platform_(platform), fresh_(fresh) {
  free_.release(kFirstAddress, kAddresses);
}

Answer<DevicePtr> VirtualMemory::reserve(Asker asker, std::uint64_t size, std::uint64_t alignment,
                                         DevicePtr at) {
  if (size == 0 || !is_whole(size)) return {.native = kInvalidValue};
  if (alignment == 0) alignment = kPageBytes;
  if (!std::has_single_bit(alignment)) return {.native = kInvalidValue};
  alignment = std::max(alignment, kPageBytes);
  const std::lock_guard lock(mutex_);
  auto begin = at.value;
  if (begin == 0 || begin % alignment != 0 || !free_.take_at(begin, size)) {
    const bool fits = size <= kAddresses && alignment <= kAddresses;
    const auto taken = fits ? free_.take(size, alignment) : std::nullopt;
    if (!taken) return {.native = kOutOfMemory};
    begin = *taken;
  }
  reservations_.emplace(begin, Reservation{.size = size, .device = asker.device});
  return {.native = kSuccess, .value = {begin}};
}

Answer<Nothing> VirtualMemory::free(DevicePtr ptr, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(ptr.value);
  if (found == reservations_.end() || found->second.size != size) return {.native = kInvalidValue};
  const auto mapping = mappings_.lower_bound(ptr.value);
  if (mapping != mappings_.end() && mapping->first - ptr.value < size)
    return {.native = kInvalidValue};
  reservations_.erase(found);
  free_.release(ptr.value, size);
  return {};
}

Answer<PhysicalHandle> VirtualMemory::create(Asker asker, std::uint64_t size) {
  if (size == 0 || !is_whole(size)) return {.native = kInvalidValue};
  const std::lock_guard lock(mutex_);
  const auto taken = platform_.device(asker.device).take_pages(asker.context, size / kPageBytes);
  if (taken != kSuccess) return {.native = taken, .value = {}, .size = size};
  physical_.emplace(++last_handle_,
                    Physical{.size = size, .owner = asker, .content = Content(fresh_)});
  return {.native = kSuccess, .value = {last_handle_}, .size = size};
}

Answer<Nothing> VirtualMemory::release(PhysicalHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(handle.value);
  if (found == physical_.end() || found->second.released) return {.native = kInvalidValue};
  if (found->second.mappings != 0) {
    found->second.released = true;
    return {};
  }
  const auto size = found->second.size;
  release_physical(handle.value);
  return {.native = kSuccess, .value = {}, .size = size};
}

// cuMemMap wants an offset of zero; a part of a piece of physical memory is not simulated.
Answer<Nothing> VirtualMemory::map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                                   PhysicalHandle handle) {
  if (size == 0 || !is_whole(ptr.value) || !is_whole(offset)) return {.native = kInvalidValue};
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(handle.value);
  if (found == physical_.end() || found->second.released) return {.native = kInvalidValue};
  auto& physical = found->second;
  if (offset != 0 || size != physical.size) return {.native = kNotSupported};
  if (!is_reserved(ptr.value, size)) return {.native = kInvalidValue};
  const auto next = mappings_.lower_bound(ptr.value);
  if (next != mappings_.end() && next->first - ptr.value < size) return {.native = kInvalidValue};
  if (around(ptr.value) != nullptr) return {.native = kInvalidValue};
  mappings_.emplace_hint(
      next, ptr.value, AddressMapping{.size = size, .handle = handle.value, .physical = &physical});
  ++physical.mappings;
  return {.native = kSuccess, .value = {}, .size = size};
}

// One call may unmap several mappings, each whole. The caller adds the time of the first; the
// answer has that of the others, and of physical memory that ends with its last mapping.
Answer<Nothing> VirtualMemory::unmap(DevicePtr ptr, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (size == 0 || !is_reserved(ptr.value, size) || is_inside(ptr.value) ||
      is_inside(ptr.value + size))
    return {.native = kInvalidValue};
  const auto first = mappings_.lower_bound(ptr.value);
  const bool is_any = first != mappings_.end() && first->first - ptr.value < size;
  if (!is_any) return {};
  Answer<Nothing> answer{.native = kSuccess, .value = {}, .size = first->second.size};
  auto last = first;
  for (; last != mappings_.end() && last->first - ptr.value < size; ++last) {
    const auto& mapping = last->second;
    if (last != first) answer.extra_ns += latency_ns(Call::mem_unmap, mapping.size, kSuccess);
    if (unmap(mapping)) answer.extra_ns += latency_ns(Call::mem_release, mapping.size, kSuccess);
  }
  mappings_.erase(first, last);
  return answer;
}

Answer<Nothing> VirtualMemory::set_access(int device, DevicePtr ptr, std::uint64_t size,
                                          AccessFlags access) {
  const std::lock_guard lock(mutex_);
  const auto first = first_of(ptr.value, size);
  if (first == mappings_.end()) return {.native = kInvalidValue};
  Answer<Nothing> answer{.native = kSuccess, .value = {}, .size = first->second.size};
  const auto bit = std::uint64_t{1} << device;
  for (auto at = first; at != mappings_.end() && at->first - ptr.value < size; ++at) {
    auto& mapping = at->second;
    if (at != first) answer.extra_ns += latency_ns(Call::mem_set_access, mapping.size, kSuccess);
    mapping.readers = access != AccessFlags::none ? mapping.readers | bit : mapping.readers & ~bit;
    mapping.writers =
        access == AccessFlags::read_write ? mapping.writers | bit : mapping.writers & ~bit;
  }
  return answer;
}

Answer<AddressRange> VirtualMemory::find(DevicePtr ptr) const {
  const std::lock_guard lock(mutex_);
  const auto* found = around(ptr.value);
  if (found == nullptr) return {.native = kNotFound};
  return {.native = kSuccess, .value = {.base = {found->first}, .size = found->second.size}};
}

void VirtualMemory::drop(int device) {
  const std::lock_guard lock(mutex_);
  for (auto at = mappings_.begin(); at != mappings_.end();) {
    const auto reservation = std::prev(reservations_.upper_bound(at->first));
    const bool ends =
        at->second.physical->owner.device == device || reservation->second.device == device;
    if (ends) unmap(at->second);
    at = ends ? mappings_.erase(at) : std::next(at);
  }
  std::erase_if(physical_, [&](const auto& entry) { return entry.second.owner.device == device; });
  for (auto at = reservations_.begin(); at != reservations_.end();) {
    const bool ends = at->second.device == device;
    if (ends) free_.release(at->first, at->second.size);
    at = ends ? reservations_.erase(at) : std::next(at);
  }
}

VirtualMemory::MappedContent VirtualMemory::content_at(std::uint64_t address, Use use, int device) {
  const auto* found = around(address);
  if (found == nullptr) return {};
  const auto& mapping = found->second;
  const auto allowed = use == Use::read ? mapping.readers : mapping.writers;
  if (device < 0 ? allowed == 0 : (allowed >> device & 1) == 0) return {};
  const auto offset = address - found->first;
  return {&mapping.physical->content, offset, mapping.size - offset};
}

const VirtualMemory::AddressMappings::value_type* VirtualMemory::around(
    std::uint64_t address) const {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return nullptr;
  --found;
  return address - found->first < found->second.size ? &*found : nullptr;
}

bool VirtualMemory::is_reserved(std::uint64_t address, std::uint64_t size) const {
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return false;
  --found;
  const auto offset = address - found->first;
  return offset < found->second.size && size <= found->second.size - offset;
}

VirtualMemory::AddressMappings::iterator VirtualMemory::first_of(std::uint64_t address,
                                                                 std::uint64_t size) {
  const auto first = mappings_.find(address);
  if (size == 0 || first == mappings_.end()) return mappings_.end();
  auto end = address;
  for (auto at = first; end - address < size; ++at) {
    if (at == mappings_.end() || at->first != end) return mappings_.end();
    end += at->second.size;
  }
  return end - address == size ? first : mappings_.end();
}

bool VirtualMemory::is_inside(std::uint64_t address) const {
  const auto* found = around(address);
  return found != nullptr && found->first != address;
}

bool VirtualMemory::unmap(const AddressMapping& mapping) {
  if (--mapping.physical->mappings != 0 || !mapping.physical->released) return false;
  release_physical(mapping.handle);
  return true;
}

void VirtualMemory::release_physical(std::uint64_t handle) {
  const auto found = physical_.find(handle);
  const auto& physical = found->second;
  platform_.device(physical.owner.device)
      .release_pages(physical.owner.context, physical.size / kPageBytes);
  physical_.erase(found);
}

}  // namespace emm::sim
