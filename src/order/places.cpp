#include "order/places.hpp"

#include <algorithm>
#include <iterator>

namespace emm::order {

void Places::created(PhysicalHandle handle, std::uint64_t size) {
  handles_[handle.value] = next_;
  next_ += size;
}

std::uint64_t Places::release(PhysicalHandle handle) {
  const auto known = handles_.extract(handle.value);
  return known ? known.mapped() : 0;
}

void Places::undo_release(PhysicalHandle handle, std::uint64_t place) {
  if (place != 0) handles_[handle.value] = place;
}

void Places::map(std::uint64_t address, std::uint64_t size, PhysicalHandle handle) {
  const auto known = handles_.find(handle.value);
  if (known == handles_.end()) return;
  mappings_[address] = {.address = address, .size = size, .place = known->second};
}

std::vector<Places::Mapping> Places::unmap(std::uint64_t address, std::uint64_t size) {
  std::vector<Mapping> gone;
  auto at = mappings_.lower_bound(address);
  for (; at != mappings_.end() && at->first - address < size; at = mappings_.erase(at)) {
    gone.push_back(at->second);
  }
  return gone;
}

void Places::undo_unmap(const std::vector<Mapping>& mappings) {
  for (const auto& mapping : mappings) mappings_[mapping.address] = mapping;
}

std::map<std::uint64_t, Places::Mapping>::const_iterator Places::first(
    std::uint64_t address) const {
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return at;
  const auto& before = std::prev(at)->second;
  return address - before.address < before.size ? std::prev(at) : at;
}

std::uint64_t Places::of(std::uint64_t address) const {
  const auto at = first(address);
  if (at == mappings_.end() || at->first > address) return address;
  return at->second.place + (address - at->first);
}

void Places::each(std::uint64_t address, std::uint64_t size,
                  const std::function<void(const Mapping&)>& each) const {
  for (auto at = first(address); size > 0;) {
    Mapping piece{.address = address, .size = size, .place = address};
    if (at != mappings_.end() && at->first <= address) {
      const auto into = address - at->first;
      piece.size = std::min(size, at->second.size - into);
      piece.place = at->second.place + into;
      ++at;
    } else if (at != mappings_.end()) {
      piece.size = std::min(size, at->first - address);
    }
    each(piece);
    address += piece.size;
    size -= piece.size;
  }
}

}  // namespace emm::order
