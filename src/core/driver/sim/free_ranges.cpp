#include "driver/sim/free_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace emm::sim {

void FreeRanges::add(FreeRange range) {
  const auto join = [&](const std::optional<FreeRange>& other) {
    if (!other || other->free_after.stream != range.free_after.stream ||
        other->recent != range.recent)
      return;
    erase(*other);
    range.at = std::min(range.at, other->at);
    range.size += other->size;
    range.free_after.number = std::max(range.free_after.number, other->free_after.number);
  };
  join(beginning_at(range.end()));
  join(ending_at(range.at));
  insert(range);
}

void FreeRanges::remove(std::uint64_t begin, std::uint64_t end) {
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin()) --next;
  while (next != ranges_.end() && next->first < end) {
    auto below = range_at(next->first);
    ++next;
    if (below.end() <= begin) continue;
    auto above = below;
    erase(below);
    below.size = begin - std::min(begin, below.at);
    above.size = above.end() - std::min(above.end(), end);
    above.at = end;
    if (below.size != 0) insert(below);
    if (above.size != 0) insert(above);
  }
}

std::optional<FreeRanges::FreeRange> FreeRanges::recent_fit(std::uint64_t stream,
                                                            std::uint64_t size) const {
  const auto found = owners_.find({stream, true});
  if (found == owners_.end()) return std::nullopt;
  const auto& by_size = found->second.by_size;
  const auto smallest = by_size.lower_bound({size, 0, 0});
  if (smallest == by_size.end()) return std::nullopt;
  return range_at(std::get<2>(*smallest));
}

std::optional<FreeRanges::FreeRange> FreeRanges::fit(std::uint64_t stream, std::uint64_t size,
                                                     std::uint64_t top) const {
  std::optional<FreeRange> best;
  for (const auto owner : {std::uint64_t{0}, stream}) {
    const auto found = owners_.find({owner, false});
    if (found == owners_.end()) continue;
    const auto& by_size = found->second.by_size;
    for (auto next = by_size.lower_bound({size, 0, 0}); next != by_size.end(); ++next) {
      const auto range = range_at(std::get<2>(*next));
      if (range.end() == top) continue;
      if (!best || range.size < best->size) best = range;
      break;
    }
  }
  return best;
}

std::vector<FreeRanges::FreeRange> FreeRanges::take_recent(std::uint64_t stream) {
  const auto owner = owners_.find({stream, true});
  if (owner == owners_.end()) return {};
  std::vector<std::pair<std::uint64_t, FreeRange>> found;  // turn
  for (const auto& [size, turn, at] : owner->second.by_size) found.emplace_back(turn, range_at(at));
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<FreeRange> taken;
  for (const auto& [turn, range] : found) {
    erase(range);
    taken.push_back(range);
  }
  return taken;
}

bool FreeRanges::is_free(std::uint64_t begin, std::uint64_t size) const {
  const auto found = around(begin);
  return found && found->free_after.stream == 0 && begin + size <= found->end();
}

std::optional<FreeRanges::FreeRange> FreeRanges::ending_at(std::uint64_t end) const {
  const auto found = around(end - 1);
  return found && found->end() == end ? found : std::nullopt;
}

std::optional<FreeRanges::FreeRange> FreeRanges::beginning_at(std::uint64_t begin) const {
  const auto found = ranges_.find(begin);
  return found == ranges_.end() ? std::nullopt : std::optional(range_at(begin));
}

std::optional<FreeRanges::FreeRange> FreeRanges::around(std::uint64_t at) const {
  const auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [begin, entry] = *std::prev(next);
  return at - begin < entry.size ? std::optional(range_at(begin)) : std::nullopt;
}

FreeRanges::FreeRange FreeRanges::range_at(std::uint64_t at) const {
  const auto& entry = ranges_.at(at);
  return {at, entry.size, entry.free_after, entry.recent};
}

void FreeRanges::insert(const FreeRange& range) {
  const auto turn = turns_++;
  ranges_.emplace(range.at, ListedRange{range.size, range.free_after, range.recent, turn});
  auto& owner = owners_[{range.free_after.stream, range.recent}];
  owner.by_size.emplace(range.size, turn, range.at);
  owner.by_point.emplace(range.free_after.number, range.at);
}

void FreeRanges::erase(const FreeRange& range) {
  const auto entry = ranges_.find(range.at);
  const auto owner = owners_.find({range.free_after.stream, range.recent});
  owner->second.by_size.erase({range.size, entry->second.turn, range.at});
  owner->second.by_point.erase({range.free_after.number, range.at});
  if (owner->second.by_size.empty()) owners_.erase(owner);
  ranges_.erase(entry);
}

}  // namespace emm::sim
