#include "bounds/shelf.hpp"

#include <algorithm>
#include <bit>

namespace emm::bounds {
namespace {

constexpr std::uint64_t kListsPerItem = 10;  // an item may stand in so many spans' lists on average
constexpr std::size_t kRunMost = 64;         // items of a run

std::uint32_t first_span(const Item& item, unsigned shift) { return item.first >> shift; }
std::uint32_t last_span(const Item& item, unsigned shift) { return (item.last - 1) >> shift; }

}  // namespace

Shelf::Shelf(std::span<const Item> items, std::uint32_t sections) {
  auto shift = static_cast<unsigned>(std::bit_width(sections));
  std::uint64_t lists = items.size();
  levels_.push_back({.shift = shift, .spans = std::vector<TimeSpan>(1)});
  while (shift-- > 0) {
    for (const auto& item : items) lists += last_span(item, shift) - first_span(item, shift) + 1;
    if (lists > items.size() * kListsPerItem) break;
    levels_.push_back({.shift = shift, .spans = std::vector<TimeSpan>((sections >> shift) + 1)});
  }
}

void Shelf::clear() noexcept {
  for (auto& level : levels_) {
    for (auto& span : level.spans) span.used = 0;
    work_ += level.spans.size();
  }
}

const Shelf::Level& Shelf::level_for(const Item& item) const noexcept {
  const auto length = item.last - item.first;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    if ((std::uint64_t{1} << level->shift) >= length) return *level;
  }
  return levels_.front();
}

std::optional<std::uint64_t> Shelf::find(const Item& item, Fit fit, std::uint64_t limit) {
  const auto& level = level_for(item);
  Cursor left{.span = &level.spans[first_span(item, level.shift)]};
  Cursor right{.span = &level.spans[last_span(item, level.shift)]};
  if (left.span == right.span) right.run = right.span->used;

  std::uint64_t top = 0;  // highest end so far of the items that are live with `item`
  std::optional<std::uint64_t> best;
  std::uint64_t best_gap = kTooMany;
  while (!left.done() || !right.done()) {
    const bool is_left = right.done() || (!left.done() && left.next().begin <= right.next().begin);
    auto& from = is_left ? left : right;
    const auto& against = is_left ? right : left;
    const auto& run = from.whole();
    if (from.at == 0) {
      ++work_;
      const bool none_live = run.last_most <= item.first || item.last <= run.first_least;
      const bool all_live = run.first_most < item.last && item.first < run.last_least;
      if (none_live || (all_live && run.gap < item.size &&
                        run.placed.front().begin <= saturating_add(top, item.size - 1))) {
        if (all_live) top = std::max(top, run.end);
        if (!best && top >= limit) return std::nullopt;
        from.pass();
        continue;
      }
    }
    // Reads this list until the other one has a lower item.
    const auto stop = against.done() ? kTooMany : against.next().begin;
    const auto* at = run.placed.data() + from.at;
    const auto* const end = run.placed.data() + run.placed.size();
    const auto* const begin = at;
    for (; at != end && at->begin <= stop; ++at) {
      if (at->last <= item.first || item.last <= at->first) continue;
      if (at->begin > top && at->begin - top >= item.size) {
        const auto offset = align_up(top, item.alignment);
        if (offset < at->begin && at->begin - offset >= item.size) {
          if (fit == Fit::first) {
            work_ += static_cast<std::uint64_t>(at - begin);
            return offset > limit || limit - offset < item.size ? std::nullopt
                                                                : std::optional(offset);
          }
          if (at->begin - top < best_gap) {
            best = offset;
            best_gap = at->begin - top;
          }
        }
      }
      top = std::max(top, at->end);
    }
    work_ += static_cast<std::uint64_t>(at - begin);
    if (!best && top >= limit) return std::nullopt;
    from.at += static_cast<std::size_t>(at - begin);
    if (at == end) from.pass();
  }
  if (!best) best = align_up(top, item.alignment);
  if (*best > limit || limit - *best < item.size) return std::nullopt;
  return best;
}

void Shelf::Run::measure() noexcept {
  const auto& front = placed.front();
  end = front.begin;
  gap = 0;
  added = 0;
  first_least = first_most = front.first;
  last_least = last_most = front.last;
  for (const auto& each : placed) widen(each);
}

void Shelf::Run::widen(const Placed& one) noexcept {
  if (one.begin > end) gap = std::max(gap, one.begin - end);
  end = std::max(end, one.end);
  first_least = std::min(first_least, one.first);
  first_most = std::max(first_most, one.first);
  last_least = std::min(last_least, one.last);
  last_most = std::max(last_most, one.last);
}

// A new item can only shrink the gaps between the others. So `gap` stays an upper bound and need
// not be measured each time.
void Shelf::Run::add(const Placed& one) {
  if (one.begin < placed.front().begin && one.end < placed.front().begin) {
    gap = std::max(gap, placed.front().begin - one.end);
  }
  widen(one);
  placed.insert(std::upper_bound(
                    placed.begin(), placed.end(), one.begin,
                    [](std::uint64_t value, const Placed& other) { return value < other.begin; }),
                one);
  if (++added > kRunMost / 4) measure();
}

Shelf::Run& Shelf::add_run(TimeSpan& span, std::size_t at) {
  if (span.used == span.runs.size()) span.runs.emplace_back();
  const auto spare = span.runs.begin() + static_cast<std::ptrdiff_t>(span.used++);
  const auto to = span.runs.begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(to, spare, spare + 1);
  to->placed.clear();
  return *to;
}

void Shelf::insert(TimeSpan& span, const Placed& placed) {
  if (span.used == 0) {
    auto& run = add_run(span, 0);
    run.placed.push_back(placed);
    run.measure();
    return;
  }
  const auto begin = span.runs.begin();
  const auto above = std::upper_bound(
      begin, begin + static_cast<std::ptrdiff_t>(span.used), placed.begin,
      [](std::uint64_t value, const Run& other) { return value < other.placed.front().begin; });
  const auto at = static_cast<std::size_t>(std::max(above, begin + 1) - begin) - 1;
  span.runs[at].add(placed);
  work_ += 32;
  if (span.runs[at].placed.size() <= kRunMost) return;
  auto& upper = add_run(span, at + 1);
  auto& lower = span.runs[at].placed;
  upper.placed.assign(lower.begin() + kRunMost / 2, lower.end());
  lower.resize(kRunMost / 2);
  upper.measure();
  span.runs[at].measure();
}

void Shelf::place(const Item& item, std::uint64_t offset) {
  const Placed placed{
      .begin = offset, .end = offset + item.size, .first = item.first, .last = item.last};
  for (auto& level : levels_) {
    for (auto i = first_span(item, level.shift); i <= last_span(item, level.shift); ++i)
      insert(level.spans[i], placed);
  }
}

}  // namespace emm::bounds
