#include "driver/sim/free_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace emm::sim {

void FreeRanges::add(Range range) {
  const auto next = ranges_.lower_bound(range.at);
  const auto join = [&](const Range& other) {
    if (other.free_after.stream != range.free_after.stream) return;
    erase(other);
    range.at = std::min(range.at, other.at);
    range.size += other.size;
    range.free_after.number = std::max(range.free_after.number, other.free_after.number);
  };
  std::optional<Range> above, below;
  if (next != ranges_.end() && next->first == range.at + range.size) above = range_at(next->first);
  below = ending_at(range.at);
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
    const auto& by_size = found->second.by_size;
    const auto lowest = by_size.lower_bound({size, 0});
    if (lowest == by_size.end()) continue;
    const auto highest = std::prev(by_size.lower_bound({lowest->first + 1, 0}));
    const auto range = range_at(highest->second);
    if (!best || range.size < best->size || (range.size == best->size && range.at > best->at))
      best = range;
  }
  return best;
}

std::optional<FreeRanges::Range> FreeRanges::first_of_any_stream(std::uint64_t after_stream) const {
  const auto owner = owners_.upper_bound(after_stream);
  if (owner == owners_.end()) return std::nullopt;
  return range_at(owner->second.by_point.begin()->second);
}

bool FreeRanges::is_free(std::uint64_t begin, std::uint64_t size) const {
  const auto found = around(begin);
  return found && found->free_after.stream == 0 && begin + size <= found->at + found->size;
}

void FreeRanges::cut(std::uint64_t begin, std::uint64_t size) {
  const auto range = *around(begin);
  const auto end = begin + size, last = range.at + range.size;
  erase(range);
  if (range.at < begin) insert({range.at, begin - range.at, range.free_after});
  if (end < last) insert({end, last - end, range.free_after});
}

std::optional<FreeRanges::Range> FreeRanges::ending_at(std::uint64_t end) const {
  const auto found = around(end - 1);
  return found && found->at + found->size == end ? found : std::nullopt;
}

std::optional<FreeRanges::Range> FreeRanges::around(std::uint64_t at) const {
  const auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [begin, entry] = *std::prev(next);
  return at - begin < entry.size ? std::optional(range_at(begin)) : std::nullopt;
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
