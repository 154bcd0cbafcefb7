#include "stream_order/physical_extents.hpp"

#include <algorithm>
#include <iterator>

namespace emm::stream_order {

void PhysicalExtents::created(PhysicalHandle handle, std::uint64_t size) {
  handles_[handle.value] = next_;
  next_ += size;
}

std::uint64_t PhysicalExtents::release(PhysicalHandle handle) {
  const auto known = handles_.extract(handle.value);
  return known ? known.mapped() : 0;
}

void PhysicalExtents::undo_release(PhysicalHandle handle, std::uint64_t place) {
  if (place != 0) handles_[handle.value] = place;
}

void PhysicalExtents::map(std::uint64_t address, std::uint64_t size, PhysicalHandle handle) {
  const auto known = handles_.find(handle.value);
  if (known == handles_.end()) return;
  mappings_[address] = {.address = address, .size = size, .place = known->second};
}

std::vector<PhysicalExtents::Extent> PhysicalExtents::unmap(std::uint64_t address,
                                                            std::uint64_t size) {
  std::vector<Extent> gone;
  auto at = mappings_.lower_bound(address);
  for (; at != mappings_.end() && at->first - address < size; at = mappings_.erase(at)) {
    gone.push_back(at->second);
  }
  return gone;
}

void PhysicalExtents::undo_unmap(const std::vector<Extent>& mappings) {
  for (const auto& mapping : mappings) mappings_[mapping.address] = mapping;
}

std::map<std::uint64_t, PhysicalExtents::Extent>::const_iterator PhysicalExtents::first(
    std::uint64_t address) const {
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return at;
  const auto& before = std::prev(at)->second;
  return address - before.address < before.size ? std::prev(at) : at;
}

std::uint64_t PhysicalExtents::place_of(std::uint64_t address) const {
  const auto at = first(address);
  if (at == mappings_.end() || at->first > address) return address;
  return at->second.place + (address - at->first);
}

void PhysicalExtents::for_each(std::uint64_t address, std::uint64_t size,
                               const std::function<void(const Extent&)>& each) const {
  for (auto at = first(address); size > 0;) {
    Extent extent{.address = address, .size = size, .place = address};
    if (at != mappings_.end() && at->first <= address) {
      const auto into = address - at->first;
      extent.size = std::min(size, at->second.size - into);
      extent.place = at->second.place + into;
      ++at;
    } else if (at != mappings_.end()) {
      extent.size = std::min(size, at->first - address);
    }
    each(extent);
    address += extent.size;
    size -= extent.size;
  }
}

}  // namespace emm::stream_order
