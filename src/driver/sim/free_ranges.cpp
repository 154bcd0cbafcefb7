#include "driver/sim/free_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace emm::sim {

void FreeRanges::add(Range range, std::uint64_t begin, std::uint64_t end) {
  const auto next = ranges_.lower_bound(range.at);
  const auto join = [&](const Range& other) {
    if (other.free_after.stream != range.free_after.stream) return;
    erase(other);
    range.at = std::min(range.at, other.at);
    range.size += other.size;
    range.free_after.number = std::max(range.free_after.number, other.free_after.number);
  };
  std::optional<Range> above, below;
  if (next != ranges_.end() && next->first == range.at + range.size && next->first != end)
    above = range_at(next->first);
  if (next != ranges_.begin() && range.at != begin) {
    const auto& [at, entry] = *std::prev(next);
    if (at + entry.size == range.at) below = range_at(at);
  }
  if (above) join(*above);
  if (below) join(*below);
  insert(range);
}

void FreeRanges::take(const Range& range, std::uint64_t size) {
  erase(range);
  if (range.size > size) insert({range.at + size, range.size - size, range.free_after});
}

std::optional<FreeRanges::Range> FreeRanges::fit(std::uint64_t stream, std::uint64_t size) const {
  std::optional<Range> best;
  for (const auto owner : {std::uint64_t{0}, stream}) {
    const auto found = owners_.find(owner);
    if (found == owners_.end()) continue;
    const auto at = found->second.by_size.lower_bound({size, 0});
    if (at == found->second.by_size.end()) continue;
    const auto range = range_at(at->second);
    if (!best || std::pair(range.size, range.at) < std::pair(best->size, best->at)) best = range;
  }
  return best;
}

std::optional<FreeRanges::Range> FreeRanges::first_of_any_stream(std::uint64_t after_stream) const {
  const auto owner = owners_.upper_bound(after_stream);
  if (owner == owners_.end()) return std::nullopt;
  return range_at(owner->second.by_point.begin()->second);
}

bool FreeRanges::is_free(std::uint64_t begin, std::uint64_t size) const {
  const auto found = ranges_.find(begin);
  return found != ranges_.end() && found->second.size == size &&
         found->second.free_after.stream == 0;
}

FreeRanges::Range FreeRanges::range_at(std::uint64_t at) const {
  const auto& entry = ranges_.at(at);
  return {at, entry.size, entry.free_after};
}

void FreeRanges::insert(const Range& range) {
  ranges_.emplace(range.at, Entry{range.size, range.free_after});
  auto& owner = owners_[range.free_after.stream];
  owner.by_size.emplace(range.size, range.at);
  owner.by_point.emplace(range.free_after.number, range.at);
}

void FreeRanges::erase(const Range& range) {
  ranges_.erase(range.at);
  const auto owner = owners_.find(range.free_after.stream);
  owner->second.by_size.erase({range.size, range.at});
  owner->second.by_point.erase({range.free_after.number, range.at});
  if (owner->second.by_size.empty()) owners_.erase(owner);
}

}  // namespace emm::sim
