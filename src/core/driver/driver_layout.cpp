#include "driver/driver_layout.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace emm {
namespace {

// Bytes. The driver gives addresses in whole pages, out of regions of a whole number of kRegion.
constexpr std::uint64_t kPage = std::uint64_t{2} << 20, kRegion = std::uint64_t{32} << 20;

std::uint64_t round_up(std::uint64_t size, std::uint64_t step) {
  return (size + step - 1) / step * step;
}

}  // namespace

std::uint64_t DriverLayout::take(std::uint64_t size) {
  size = round_up(size, kPage);
  auto region = newest_with(size);
  if (region == regions_.end()) region = new_region(round_up(size, kRegion));
  const auto address = *region->second.holes.take(size);
  ++region->second.taken;
  list(region);
  return address;
}

void DriverLayout::take_at(std::uint64_t address, std::uint64_t size) {
  size = round_up(size, kPage);
  auto base = address / kRegion * kRegion, end = round_up(address + size, kRegion);
  FreeAddresses holes;
  std::size_t taken = 1;
  auto at = base;  // what no region has yet begins here
  auto region = regions_.upper_bound(base);
  if (region != regions_.begin() && end_of(std::prev(region)) > base) --region;
  while (region != regions_.end() && region->first < end) {
    if (region->first > at) holes.release(at, region->first - at);
    for (const auto& [hole, length] : region->second.holes.ranges()) holes.release(hole, length);
    taken += region->second.taken;
    base = std::min(base, region->first);
    at = end_of(region);
    end = std::max(end, at);
    unlist(region);
    region = regions_.erase(region);
  }
  if (at < end) holes.release(at, end - at);
  holes.take_at(address, size);
  // The driver takes the highest free addresses, so a gap that it skipped belongs to others.
  if (!is_bounded_) {
    gaps_ = FreeAddresses();
    if (base != 0) gaps_.release(0, base);
    lowest_ = highest_ = base;
  }
  gaps_.remove(base, base < lowest_ ? std::max(end, lowest_) : end);
  lowest_ = std::min(lowest_, base);
  highest_ = std::max(highest_, end);
  const auto made = begin_region(base, end - base, std::move(holes));
  made->second.taken = taken;
  list(made);
}

void DriverLayout::release(std::uint64_t address, std::uint64_t size) {
  const auto region = std::prev(regions_.upper_bound(address));
  if (--region->second.taken == 0) {
    unlist(region);
    gaps_.release(region->first, region->second.length);
    regions_.erase(region);
    return;
  }
  region->second.holes.release(address, round_up(size, kPage));
  list(region);
}

DriverLayout::Regions::iterator DriverLayout::newest_with(std::uint64_t size) {
  auto best = by_longest_.end();
  for (auto hole = by_longest_.lower_bound(size); hole != by_longest_.end(); ++hole) {
    if (best == by_longest_.end() || hole->second.rbegin()->first > best->second.rbegin()->first)
      best = hole;
  }
  return best == by_longest_.end() ? regions_.end() : regions_.find(best->second.rbegin()->second);
}

DriverLayout::Regions::iterator DriverLayout::new_region(std::uint64_t length) {
  auto base = gaps_.take_highest(length, kRegion);
  if (!base) {
    base = round_up(highest_, kRegion);
    highest_ = *base + length;
  }
  lowest_ = std::min(lowest_, *base);
  FreeAddresses all;
  all.release(*base, length);
  return begin_region(*base, length, std::move(all));
}

DriverLayout::Regions::iterator DriverLayout::begin_region(std::uint64_t base, std::uint64_t length,
                                                           FreeAddresses holes) {
  is_bounded_ = true;
  const auto region = regions_.try_emplace(base).first;
  region->second.length = length;
  region->second.age = ages_++;
  region->second.holes = std::move(holes);
  return region;
}

std::uint64_t DriverLayout::end_of(Regions::const_iterator region) {
  return region->first + region->second.length;
}

void DriverLayout::list(Regions::iterator region) {
  const auto longest = region->second.holes.longest();
  if (region->second.is_listed && region->second.listed == longest) return;
  unlist(region);
  region->second.listed = longest;
  region->second.is_listed = true;
  by_longest_[longest].emplace(region->second.age, region->first);
}

void DriverLayout::unlist(Regions::iterator region) {
  if (!region->second.is_listed) return;
  const auto same = by_longest_.find(region->second.listed);
  same->second.erase(region->second.age);
  if (same->second.empty()) by_longest_.erase(same);
}

}  // namespace emm
