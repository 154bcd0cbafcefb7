#include "allocators/pytorch/segment_pools.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace emm::allocators::pytorch {
namespace {

// Marks a pool that the recording does not name.
constexpr std::uint64_t kUnnamed = ~std::uint64_t{0};
// The length of an address range if the recording does not state the device's total.
constexpr std::uint64_t kRangeOfUnknown = std::uint64_t{1} << 37;

}  // namespace

SegmentPools::SegmentPools(const Recording& recording, const Settings& settings) {
  using Kind = Step::Kind;
  struct Range {
    std::uint64_t begin = 0, stream = 0, mapped = 0;
    std::uint32_t group = 0;
    bool small = false;
  };
  const auto length = settings.total != 0 ? settings.total / 8 * 9 : kRangeOfUnknown;
  std::vector<Range> ranges;
  std::uint64_t batch = 0;
  const auto& steps = recording.steps();
  std::size_t next_alloc = 0;  // Index of the next alloc after the current step.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    if (step.kind == Kind::segment_end) {
      batch += i == 0 || steps[i - 1].kind != Kind::segment_end ? 1 : 0;
      const auto group = segments_[step.allocation].group;
      groups_[group].batch = batch;
      // A range with nothing mapped is gone, and another may take its place.
      const auto range = std::find_if(ranges.begin(), ranges.end(),
                                      [&](const Range& each) { return each.group == group; });
      if (range != ranges.end()) {
        range->mapped -= std::min(range->mapped, step.size);
        if (range->mapped == 0) ranges.erase(range);
      }
    }
    if (step.kind != Kind::segment_begin) continue;
    if (segments_.size() <= step.allocation) segments_.resize(step.allocation + 1);
    auto& part = segments_[step.allocation];
    part.small = step.small;
    // The size of the request that needed a segment tells more than the segment's size.
    next_alloc = std::max(next_alloc, i + 1);
    while (next_alloc < steps.size() && steps[next_alloc].kind != Kind::alloc) ++next_alloc;
    if (!step.preexisting && next_alloc < steps.size())
      part.small = allocators::pytorch::is_small(round_size(settings, steps[next_alloc].size));
    auto range = ranges.end();
    if (step.mapped) {
      range = std::find_if(ranges.begin(), ranges.end(), [&](const Range& each) {
        const auto& group = groups_[each.group];
        return each.stream == step.stream && each.small == part.small &&
               (step.address >= each.begin ? step.address - each.begin < length
                                           : each.begin - step.address < length / 2) &&
               !(group.known && step.pool_known && group.pool != step.pool);
      });
    }
    if (range == ranges.end()) {
      part.group = static_cast<std::uint32_t>(groups_.size());
      groups_.push_back({.pool = step.pool, .known = step.pool_known});
      if (step.mapped)
        ranges.push_back({.begin = step.address,
                          .stream = step.stream,
                          .mapped = step.size,
                          .group = part.group,
                          .small = part.small});
    } else {
      range->mapped += step.size;
      part.group = range->group;
      auto& group = groups_[part.group];
      if (step.pool_known) group = {.pool = step.pool, .known = true};
    }
    if (step.pool_known && std::find(known_.begin(), known_.end(), step.pool) == known_.end() &&
        !step.pool.is_default())
      known_.push_back(step.pool);
  }
}

std::uint64_t SegmentPools::inferred() const noexcept {
  return static_cast<std::uint64_t>(std::count_if(
      segments_.begin(), segments_.end(),
      [this](const GroupedSegment& segment) { return !groups_[segment.group].known; }));
}

bool SegmentPools::set_apart(const Pairs& apart) {
  auto any = false;
  for (const auto& pair : apart) {
    if (groups_[pair.first].known && groups_[pair.second].known) continue;
    any = apart_.insert(pair).second || any;
  }
  if (any) infer();
  return any;
}

void SegmentPools::infer() {
  std::vector<std::vector<std::uint32_t>> others(groups_.size());
  for (const auto& [a, b] : apart_) {
    others[a].push_back(b);
    others[b].push_back(a);
  }
  std::vector<bool> done(groups_.size(), false);
  for (std::size_t i = 0; i < groups_.size(); ++i) done[i] = groups_[i].known;
  std::vector<PoolId> choices{PoolId{}};
  choices.insert(choices.end(), known_.begin(), known_.end());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (done[i]) continue;
    std::set<PoolId> taken;
    for (const auto other : others[i]) {
      if (done[other]) taken.insert(groups_[other].pool);
    }
    const auto is_taken = [&](PoolId id) { return taken.count(id) != 0; };
    const PoolId of_batch{.first = kUnnamed, .second = groups_[i].batch};
    if (is_taken(PoolId{}) && groups_[i].batch != 0 && !is_taken(of_batch)) {
      // Segments that were released together most likely belong to one pool.
      groups_[i].pool = of_batch;
      done[i] = true;
      continue;
    }
    auto choice = std::find_if_not(choices.begin(), choices.end(), is_taken);
    if (choice == choices.end()) {
      choices.push_back({.first = kUnnamed, .second = kUnnamed - choices.size()});
      choice = std::prev(choices.end());
    }
    groups_[i].pool = *choice;
    done[i] = true;
  }
}

}  // namespace emm::allocators::pytorch
