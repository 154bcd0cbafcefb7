#include "bounds/search.hpp"

#include <algorithm>
#include <numeric>

#include "base/assert.hpp"

namespace emm::bounds {
namespace {

constexpr std::size_t kDepthMax = 10'000;     // each level takes some hundred bytes of stack
constexpr std::uint64_t kStopInterval = 256;  // nodes between two looks at the clock
// States that are remembered, 8 bytes each.
constexpr std::size_t kRefutedMax = std::size_t{1} << 20;

// Mixes two words into one (the finisher of splitmix64). A sum of such words identifies a set.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  auto z = a * 0x9e3779b97f4a7c15u + (b + 1) * 0xd1b54a32d192ed03u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

bool overlap(const Item& a, const Item& b) { return a.first < b.last && b.first < a.last; }
bool covers(const Item& item, std::uint32_t section) {
  return item.first <= section && section < item.last;
}

}  // namespace

Search::Search(const Instance& instance, std::uint64_t capacity)
    : instance_(instance),
      capacity_(capacity),
      has_equal_(instance.items.size(), false),
      placed_(instance.items.size(), 0),
      offsets_(instance.items.size(), 0),
      lowest_(instance.items.size(), 0),
      tops_(instance.sections, 0),
      answers_(instance.sections, 0) {
  for (std::size_t i = 1; i < instance.items.size(); ++i) {
    has_equal_[i] = instance.items[i] == instance.items[i - 1];
  }
  for (const auto& item : instance.items) {
    unit_ = std::gcd(unit_, item.size);
    if (item.alignment > 1) unit_ = std::gcd(unit_, item.alignment);
  }
}

Search::Outcome Search::run(const std::vector<std::uint32_t>& ranks, const Limits& limits,
                            const Stop& stop) {
  EMM_ASSERT(ranks.size() == instance_.items.size());
  ranks_ = ranks;
  limits_ = limits;
  stop_ = &stop;
  nodes_ = 0;
  stopped_ = false;
  std::fill(placed_.begin(), placed_.end(), std::uint8_t{0});
  Items left(instance_.items.size());
  for (std::uint32_t i = 0; i < left.size(); ++i) left[i] = i;
  Floors floors(instance_.sections, 0);
  return descend(left, floors, 0);
}

Search::Outcome Search::descend(const Items& left, Floors& floors, std::size_t depth) {
  std::vector<Items> groups;
  std::uint32_t end = 0;
  for (const auto i : left) {
    const auto& item = instance_.items[i];
    if (groups.empty() || item.first >= end) groups.emplace_back();
    groups.back().push_back(i);
    end = std::max(end, item.last);
  }
  if (groups.size() == 1) return place_group(left, floors, depth);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (const auto& group : groups) {
    auto own = floors;
    const auto outcome = place_group(group, own, depth);
    if (outcome == Outcome::placed) continue;
    for (const auto i : left) placed_[i] = 0;
    return outcome;
  }
  return Outcome::placed;
}

Search::Outcome Search::place_group(const Items& left, Floors& floors, std::size_t depth) {
  if (stopped_ || ++nodes_ > limits_.nodes || depth > kDepthMax) return Outcome::gave_up;
  if (nodes_ % kStopInterval == 0 && (*stop_)()) {
    stopped_ = true;
    return Outcome::gave_up;
  }
  if (!raise_floors(left, floors)) return Outcome::infeasible;
  const auto print = fingerprint(left, floors);
  if (refuted_.contains(print)) return Outcome::infeasible;

  const auto question = ask(left, floors);
  const auto floor = floors[question.section];
  Items rest;
  Floors above;
  for (const auto i : question.answers) {
    const auto& item = instance_.items[i];
    above = floors;
    std::fill(above.begin() + item.first, above.begin() + item.last, floor + item.size);
    rest = left;
    rest.erase(std::find(rest.begin(), rest.end(), i));
    placed_[i] = 1;
    offsets_[i] = floor;
    const auto outcome = descend(rest, above, depth + 1);
    if (outcome != Outcome::infeasible) return outcome;
    placed_[i] = 0;
  }
  if (question.waste_to != kTooMany) {
    above = floors;
    above[question.section] = question.waste_to;
    const auto outcome = place_group(left, above, depth + 1);
    if (outcome != Outcome::infeasible) return outcome;
  }
  if (refuted_.size() < kRefutedMax) refuted_.insert(print);
  return Outcome::infeasible;
}

// No item can lie lower than the highest floor under it, and no floor is lower than the lowest item
// over it. Fills lowest_, tops_ and answers_ for ask(). Returns false if some section cannot hold
// the items that are left.
bool Search::raise_floors(const Items& left, Floors& floors) {
  std::uint32_t begin = instance_.sections;
  std::uint32_t end = 0;
  by_floor_.clear();
  for (const auto i : left) {
    const auto& item = instance_.items[i];
    const auto highest = *std::max_element(floors.begin() + item.first, floors.begin() + item.last);
    lowest_[i] = align_up(highest, item.alignment);
    by_floor_.emplace_back(lowest_[i], i);
    begin = std::min(begin, item.first);
    end = std::max(end, item.last);
  }
  std::fill(tops_.begin() + begin, tops_.begin() + end, 0);
  std::fill(answers_.begin() + begin, answers_.begin() + end, 0u);
  std::sort(by_floor_.begin(), by_floor_.end());
  for (const auto& [lowest, i] : by_floor_) {
    const auto& item = instance_.items[i];
    const auto counts = is_next_of_equals(i) ? 1u : 0u;
    for (auto s = item.first; s < item.last; ++s) {
      if (tops_[s] == 0)
        floors[s] = lowest;  // by_floor_ is sorted, so the first item is the lowest
      const auto base = std::max(tops_[s], lowest);
      if (base > capacity_ || item.size > capacity_ - base) return false;
      tops_[s] = base + item.size;
      if (lowest == floors[s]) answers_[s] += counts;
    }
  }
  return true;
}

Search::Question Search::ask(const Items& left, const Floors& floors) const {
  Question question{.section = instance_.sections, .waste_to = kTooMany, .answers = {}};
  std::uint64_t least = kTooMany;
  std::uint32_t fewest = 0;
  std::uint32_t painted = 0;  // end of the sections looked at; `left` is sorted by first section
  for (const auto i : left) {
    const auto& item = instance_.items[i];
    for (auto s = std::max(painted, item.first); s < item.last; ++s) {
      const auto spare = capacity_ - tops_[s];
      const auto score = saturating_add(floors[s], (spare >> 4) * limits_.spare_weight);
      const auto count = answers_[s] + (limits_.waste_counts && spare > 0 ? 1u : 0u);
      if (question.section == instance_.sections || score < least ||
          (score == least && count < fewest)) {
        least = score;
        fewest = count;
        question.section = s;
      }
    }
    painted = std::max(painted, item.last);
  }
  const auto floor = floors[question.section];

  std::uint64_t bytes = 0;
  for (const auto i : left) {
    const auto& item = instance_.items[i];
    if (!covers(item, question.section)) continue;
    bytes += item.size;  // cannot overflow: raise_floors() found that these fit into the capacity
    if (lowest_[i] > floor) {
      question.waste_to = std::min(question.waste_to, lowest_[i]);
      continue;
    }
    if (is_next_of_equals(i)) question.answers.push_back(i);
    for (const auto k :
         left) {  // items that could lie under this one without covering this section
      const auto& under = instance_.items[k];
      if (!overlap(item, under) || covers(under, question.section)) continue;
      const auto top = std::max(lowest_[k] + under.size, saturating_add(floor, unit_));
      question.waste_to = std::min(question.waste_to, align_up(top, item.alignment));
    }
  }
  if (question.waste_to > capacity_ || bytes > capacity_ - question.waste_to)
    question.waste_to = kTooMany;
  std::sort(question.answers.begin(), question.answers.end(),
            [&](auto a, auto b) { return ranks_[a] < ranks_[b]; });
  return question;
}

Search::Print Search::fingerprint(const Items& left, const Floors& floors) const {
  Print print;
  const auto add = [&](std::uint64_t word) {
    print.low += word;
    print.high += mixed(word, word >> 32);
  };
  std::uint32_t painted = 0;  // end of the sections added; `left` is sorted by first section
  for (const auto i : left) {
    const auto& item = instance_.items[i];
    add(mixed(i, kTooMany));
    for (auto s = std::max(painted, item.first); s < item.last; ++s) add(mixed(s, floors[s]));
    painted = std::max(painted, item.last);
  }
  return print;
}

}  // namespace emm::bounds
