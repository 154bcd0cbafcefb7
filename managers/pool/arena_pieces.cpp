// An arena's memory in pieces: holes at the ends of spans, and spans that are wholly free, mapped
// as one.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/assert.hpp"
#include "managers/pool/arena.hpp"

namespace emm::pool {
namespace {

/// Does a span end or begin in [start, end]? All of them do on whole pages.
constexpr bool may_touch_an_end(std::uint64_t start, std::uint64_t end) noexcept {
  return Backing::in_pages(start) <= end;
}

constexpr std::size_t kMostMappings = std::size_t{1}
                                      << 16;  // of spans; each costs the driver some memory
constexpr std::size_t kMostUses = 1024;       // remembered of a life

/// A hole, and the spans that are wholly in it.
struct Candidate {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t whole_start = 0;  ///< The first start of a span in it, or its end,
  std::uint64_t whole_end = 0;    ///< and the last end of one.
  std::uint64_t as_first() const noexcept { return whole_end > start ? whole_end - start : 0; }
  std::uint64_t as_last() const noexcept { return end > whole_start ? end - whole_start : 0; }
  std::uint64_t whole() const noexcept {
    return whole_end > whole_start ? whole_end - whole_start : 0;
  }
  std::uint64_t part_before() const noexcept { return as_first() - whole(); }
  std::uint64_t part_behind() const noexcept { return as_last() - whole(); }
};

struct Outer {
  const Candidate* first = nullptr;
  const Candidate* last = nullptr;
  /// What comes last begins there: what is whole of a hole that is first too is there already.
  std::uint64_t last_start() const noexcept {
    return last == first ? last->whole_end : last->whole_start;
  }
};

// The hole that has most of a span before its whole ones, and another with most of one behind;
// neither where there is no part of a span. `at_last` the same hole may be both: the mapping then
// goes from the one of its ends to the other by way of other memory.
Outer outer(std::span<const Candidate> holes, bool at_last) noexcept {
  const auto most = [&](auto part, const Candidate* but) {
    const Candidate* found = nullptr;
    for (const auto& hole : holes) {
      if (&hole != but && (hole.*part)() > 0 &&
          (found == nullptr || (hole.*part)() > (found->*part)()))
        found = &hole;
    }
    return found;
  };
  const auto sum = [](const Outer& of) {
    return (of.first != nullptr ? of.first->part_before() : 0) +
           (of.last != nullptr ? of.last->part_behind() : 0);
  };
  const auto* first = most(&Candidate::part_before, nullptr);
  const auto* last = most(&Candidate::part_behind, nullptr);
  if (first != last) return {first, last};
  const Outer as_first{first, most(&Candidate::part_behind, first)};
  const Outer as_last{most(&Candidate::part_before, last), last};
  const auto two = sum(as_last) > sum(as_first) ? as_last : as_first;
  return at_last && sum({first, last}) > sum(two) ? Outer{first, last} : two;
}

// The one that reaches the end of what the arena has.
const Candidate* tail_of(std::span<const Candidate> holes, std::uint64_t end) noexcept {
  const auto tail =
      std::find_if(holes.begin(), holes.end(), [&](const auto& hole) { return hole.end == end; });
  return tail != holes.end() ? &*tail : nullptr;
}

}  // namespace

// Of the first span that begins at `address` or above it.
std::ptrdiff_t Arena::place_from(std::uint64_t address) const noexcept {
  const auto place =
      std::lower_bound(by_address_.begin(), by_address_.end(), address,
                       [&](std::uint32_t at, std::uint64_t a) { return spans_[at].address < a; });
  return place - by_address_.begin();
}

std::uint32_t Arena::span_at(std::uint64_t address) const noexcept {
  auto range = ranges_.rbegin();
  while (address - range->base >= range->size) ++range;
  return range->spans[(address - range->base) / Backing::kPage];
}

void Arena::name_pages(std::uint32_t span) {
  auto range = ranges_.rbegin();
  while (spans_[span].address - range->base >= range->size) ++range;
  const auto first = (spans_[span].address - range->base) / Backing::kPage;
  const auto end = first + spans_[span].size / Backing::kPage;
  if (range->spans.size() < end) range->spans.resize(end, kNone);
  std::fill(range->spans.begin() + static_cast<std::ptrdiff_t>(first),
            range->spans.begin() + static_cast<std::ptrdiff_t>(end), span);
}

// What of the hole reaches an end of a span. Nothing where it lies in the midst of one.
std::optional<Arena::Hole> Arena::look_at(std::uint32_t block) {
  auto start = blocks_.address(block);
  const auto end = end_of(block);
  if (!may_touch_an_end(start, end)) return {};
  auto index = span_at(start);
  if (start != spans_[index].address && end < spans_[index].end()) return {};
  Hole hole{.block = block, .low = index, .high = index};
  for (;;) {
    touched_.push_back(index);
    const auto& span = spans_[index];
    auto& ends = ends_[index];
    if (start == span.address) {
      ends.low = std::min(end, span.end()) - start;
      ends.low_block = block;
    }
    if (end >= span.end()) {
      ends.high = span.end() - start;
      ends.high_block = block;
    }
    start = span.end();
    if (start >= end) return hole;
    index = span_at(start);
    hole.high = index;
  }
}

// Of less than a page a slab may be where `max` is near.
std::uint64_t Arena::smallest_span() const noexcept {
  auto least = Backing::kPage;
  if (is_mapped()) return least;
  for (const auto& span : spans_) least = std::min(least, span.size);
  return least;
}

// Of free blocks too small for a span only the largest size class is looked up: the bound stays a
// bound, and the many small blocks cost nothing.
Supply Arena::supply() noexcept {
  empty_inbox();
  blocks_.join_kept();
  const auto least = blocks_.granules(smallest_span());
  const auto smaller = blocks_.bytes(blocks_.most_below(least));
  Supply supply{.allocated = statistics_.allocated.current, .has_deferred = waits()};
  supply.largest = smaller;
  if (is_mapped()) supply.before = supply.behind = smaller;
  for (auto span = playing_; span < spans_.size(); ++span) supply.whole += spans_[span].size;
  blocks_.for_each_free(least, [&](std::uint32_t block) {
    add_hole(supply, blocks_.address(block), end_of(block));
  });
  return supply;
}

void Arena::add_hole(Supply& supply, std::uint64_t start, std::uint64_t end) const noexcept {
  supply.largest = std::max(supply.largest, end - start);
  auto place = by_address_.begin() + place_from(start);
  const auto span_behind = [&]() -> const Span* {
    return place != by_address_.end() ? &spans_[*place] : nullptr;
  };
  if (is_mapped()) {
    const auto first_end =
        place != by_address_.begin() ? spans_[*std::prev(place)].end() : std::uint64_t{0};
    if (first_end > start && first_end <= end)
      supply.before = std::max(supply.before, first_end - start);
  }
  const auto* span = span_behind();
  for (; span != nullptr && span->end() <= end; ++place, span = span_behind())
    supply.whole += span->size;
  if (is_mapped() && span != nullptr && span->address < end)
    supply.behind = std::max(supply.behind, end - span->address);
}

// Holes of less than `least` bytes are passed over.
void Arena::look_at_ends(std::uint64_t least) {
  for (const auto span : touched_) ends_[span] = {};
  touched_.clear();
  holes_.clear();
  ends_.resize(spans_.size());
  blocks_.for_each_free(blocks_.granules(least), [&](std::uint32_t block) {
    if (const auto hole = look_at(block)) holes_.push_back(*hole);
  });
}

bool Arena::has(const Mapping& mapping, std::uint64_t wanted, Return of) const noexcept {
  if (mapping.size < wanted || mapping.middle + blocks_.bytes(1) >= wanted) return false;
  std::uint32_t out_of_play = 0;
  std::uint32_t highest = 0;
  const auto ends = [&](std::uint32_t span) {
    if (span < playing_) return ends_[span];
    ++out_of_play;
    highest = std::max(highest, span);
    return Ends{.low = spans_[span].size, .high = spans_[span].size};
  };
  const auto high = ends(mapping.spans.front()).high;
  const auto low = ends(mapping.spans.back()).low;
  if (high == 0 || low == 0 || high + mapping.middle + low < wanted) return false;
  if (mapping.spans.front() == mapping.spans.back() && high == spans_[mapping.spans.front()].size)
    return false;
  for (std::size_t at = 1; at + 1 < mapping.spans.size(); ++at) {
    if (ends(mapping.spans[at]).low < spans_[mapping.spans[at]].size) return false;
  }
  // What is out of play comes back in its order.
  return out_of_play == 0 || (highest + 1 - playing_ == out_of_play &&
                              (of == Return::any || out_of_play == mapping.grown));
}

// The oldest that has room: the one that was made when the same requests came before.
Arena::Taken Arena::take_mapped(std::uint64_t size, std::uint64_t wanted, Return of) {
  for (std::size_t mapping = 0; mapping < mappings_.size(); ++mapping) {
    if (has(mappings_[mapping], wanted, of)) return take_through(mapping, size, wanted, playing_);
  }
  return {};
}

// As far as one follows the other.
void Arena::play_next(std::uint32_t must_play) {
  auto end = spans_[playing_].end();
  for (auto next = playing_ + 1; next < must_play && spans_[next].address == end; ++next)
    end = spans_[next].end();
  play(end - spans_[playing_].address);
}

// The next of the last life's composites, where that was for as much: what it was made of may be
// free again.
Arena::Taken Arena::take_as_before(std::uint64_t size, std::uint64_t wanted) {
  const auto at = uses_.uses.size();
  if (at >= before_.uses.size()) return {};
  const auto& use = before_.uses[at];
  if (use.mapping == kNone || use.wanted != wanted || use.playing != playing_) return {};
  while (playing_ < use.must_play) play_next(use.must_play);
  const auto* const parts = before_.parts.data();
  const auto first = at > 0 ? before_.uses[at - 1].parts_end : 0;
  const auto is_free = [&](const Part& part) {
    return blocks_.is_hole_of(part.hole, part.start, part.end);
  };
  if (!std::all_of(parts + first, parts + use.parts_end, is_free)) return {};
  const auto first_now = uses_.parts.size();
  uses_.parts.insert(uses_.parts.end(), parts + first, parts + use.parts_end);
  return take_parts(size, use, first_now);
}

// The last life looked for holes in vain then, and has left memory that needs no mapping.
bool Arena::has_grown_before(std::uint64_t wanted) const noexcept {
  const auto at = uses_.uses.size();
  if (at >= before_.uses.size() || playing_ == spans_.size()) return false;
  const auto& use = before_.uses[at];
  return use.mapping == kNone && use.wanted == wanted && use.playing == playing_;
}

void Arena::remember_growth(std::uint64_t wanted, std::uint32_t playing) {
  if (uses_.uses.size() >= kMostUses) return;
  uses_.uses.push_back({.wanted = wanted,
                        .mapping = kNone,
                        .playing = playing,
                        .must_play = playing,
                        .parts_end = static_cast<std::uint32_t>(uses_.parts.size()),
                        .address = {}});
}

// So many spans were `playing` when it was asked for.
Arena::Taken Arena::take_through(std::size_t index, std::uint64_t size, std::uint64_t wanted,
                                 std::uint32_t playing) {
  const auto& mapping = mappings_[index];
  const auto highest = *std::max_element(mapping.spans.begin(), mapping.spans.end());
  Use use{.wanted = wanted,
          .mapping = static_cast<std::uint32_t>(index),
          .playing = playing,
          .must_play = std::max(playing_, highest + 1)};
  while (playing_ < use.must_play) {
    play_next(use.must_play);
    (void)look_at(blocks_.last());
  }

  const auto first = mapping.spans.front();
  const auto last = mapping.spans.back();
  const auto granule = blocks_.bytes(1);
  const auto rest = wanted - mapping.middle;
  // The end that is a hole already is used up first, so that a whole span stays as whole as can be.
  const bool spare_first =
      ends_[first].high == spans_[first].size && ends_[last].low < spans_[last].size;
  auto upper = spare_first ? std::min(ends_[last].low, rest - granule)
                           : rest - std::min(ends_[first].high, rest - granule);
  const auto lower = rest - upper;
  use.address = mapping.base + (spans_[first].size - lower);

  // What follows in the mapping and in the arena is one part.
  const auto first_part = uses_.parts.size();
  Part part{.start = spans_[first].end() - lower,
            .end = spans_[first].end(),
            .hole = ends_[first].high_block};
  for (std::size_t at = 1; at < mapping.spans.size(); ++at) {
    const auto& span = spans_[mapping.spans[at]];
    const auto hole = ends_[mapping.spans[at]].low_block;
    const auto end = at + 1 == mapping.spans.size() ? span.address + upper : span.end();
    if (span.address != part.end || hole != part.hole) {
      uses_.parts.push_back(part);
      part = {.start = span.address, .end = end, .hole = hole};
    }
    part.end = end;
  }
  uses_.parts.push_back(part);
  return take_parts(size, use, first_part);
}

// Those of uses_ from the first on, which are free.
Arena::Taken Arena::take_parts(std::uint64_t size, Use use, std::size_t first_part) {
  auto& mapping = mappings_[use.mapping];
  if (std::exchange(mapping.life, life_) != life_) used_ += mapping.spans.size();
  std::uint32_t index = 0;
  if (idle_composites_.empty()) {
    index = static_cast<std::uint32_t>(composites_.size());
    composites_.emplace_back();
  } else {
    index = idle_composites_.back();
    idle_composites_.pop_back();
  }
  auto& composite = composites_[index];
  composite.requested = size;

  for (auto at = first_part; at < uses_.parts.size(); ++at) {
    auto [start, end, hole] = uses_.parts[at];
    while (end_of(hole) <= start) hole = blocks_.after(hole);
    composite.parts.push_back(blocks_.carve(hole, start, blocks_.granules(end - start)));
    blocks_.set_note(composite.parts.back(), 0);
  }
  blocks_.set_note(composite.parts.front(), kComposite | index);
  composite.address = use.address;
  if (uses_.uses.size() < kMostUses) {
    use.parts_end = static_cast<std::uint32_t>(uses_.parts.size());
    uses_.uses.push_back(use);
  } else {
    uses_.parts.resize(first_part);
  }
  count(size, use.wanted);
  return {.address = composite.address,
          .cookie = blocks_.cookie(composite.parts.front()),
          .mark = epoch_.mark()};
}

Result<Arena::Taken> Arena::take_in_pieces(std::uint64_t size, std::uint64_t wanted,
                                           std::uint64_t least) {
  if (wanted <= blocks_.bytes(1)) return Taken();
  look_at_ends(least);
  if (const auto taken = take_mapped(size, wanted, Return::as_grown)) return taken;
  if (playing_ == spans_.size()) return stitch(size, wanted, least);
  const auto missing = wanted - std::min(wanted, tail());
  if (next_in_play(missing) >= missing) return Taken();  // memory that needs no mapping is there
  return take_mapped(size, wanted, Return::any);
}

// Between two spans of which a part is free at the right end only whole ones can be: so the holes
// that reach farthest into such spans come first and last, and the others between them, as few as
// can be. What is missing then is asked of the driver. Where mapping is most of the cost, what it
// gives stays where it is mapped first: behind what is free at the end, and the others are mapped
// behind it. REQUIRES: look_at_ends(least).
Result<Arena::Taken> Arena::stitch(std::uint64_t size, std::uint64_t wanted, std::uint64_t least) {
  std::size_t mapped = 0;
  for (const auto& mapping : mappings_) mapped += mapping.spans.size();
  if (mapped > kMostMappings) return Taken();
  std::vector<Candidate> holes;
  for (const auto& seen : holes_) {
    Candidate hole{.start = blocks_.address(seen.block), .end = end_of(seen.block)};
    const auto& low = spans_[seen.low];
    const auto& high = spans_[seen.high];
    hole.whole_start = hole.start == low.address ? hole.start : low.end();
    hole.whole_end = hole.end == high.end() ? hole.end : high.address;
    if (hole.as_first() > 0 || (hole.as_last() > 0 && hole.whole_start < hole.end))
      holes.push_back(hole);
  }
  if (holes.empty()) return Taken();
  std::vector<const Candidate*> between;
  for (const auto& hole : holes) {
    if (hole.whole() > 0) between.push_back(&hole);
  }
  std::sort(between.begin(), between.end(), [](const Candidate* a, const Candidate* b) {
    return a->whole() != b->whole() ? a->whole() > b->whole() : a->start < b->start;
  });

  std::vector<std::uint32_t> chosen;
  std::size_t of_first = 0;
  std::uint64_t sum = 0;
  const auto add = [&](std::uint64_t start, std::uint64_t end) {
    sum += end - start;
    while (start < end) {
      chosen.push_back(span_at(start));
      start = spans_[chosen.back()].end();
    }
  };
  // All but the last hole. What is missing with it.
  const auto choose = [&](const Outer& holes_used) {
    const auto [first, last] = holes_used;
    const auto at_the_end = last != nullptr ? last->end - holes_used.last_start() : 0;
    chosen.clear();
    sum = 0;
    if (first != nullptr) add(first->start, first->whole_end);
    of_first = chosen.size();
    for (const auto* hole : between) {
      if (sum + at_the_end >= wanted) break;
      if (hole != first && hole != last) add(hole->whole_start, hole->whole_end);
    }
    return Backing::in_pages(wanted - std::min(wanted, sum + at_the_end));
  };
  auto used = outer(holes, least == 1);
  auto missing = choose(used);
  // That takes more than the other way: not where memory has run out.
  bool in_place = missing > 0 && growth::stitches_often(usage()) && least > 1;
  if (in_place) {
    used.first = tail_of(holes, next_address_);
    missing = choose(used);
  }
  if (missing > 0 && missing >= Backing::in_pages(wanted - tail()))
    return Taken();  // nothing is saved
  const auto place = in_place ? of_first : chosen.size();
  if (used.last != nullptr && (in_place || sum + missing < wanted))
    add(used.last_start(), used.last->end);
  const auto had = static_cast<std::uint32_t>(spans_.size());
  if (missing > 0) {
    std::vector<Span> behind;
    for (auto at = place; in_place && at < chosen.size(); ++at)
      behind.push_back(spans_[chosen[at]]);
    in_place = in_place && missing + size_of(behind) <= addresses_left();
    if (!in_place) behind.clear();
    if (auto grown = add_spans(missing, growth::single_span_limit(usage()), behind); !grown) {
      if (grown.error().code == Errc::out_of_memory) return Taken();
      return std::move(grown).error();
    }
    std::vector<std::uint32_t> grown(spans_.size() - had);
    std::iota(grown.begin(), grown.end(), had);
    chosen.insert(chosen.begin() + static_cast<std::ptrdiff_t>(place), grown.begin(), grown.end());
    look_at_ends(least);
  }

  // Spans that are not needed after all, from the side of the first hole.
  const auto excess_without_first = [&] {
    std::uint64_t rest = ends_[chosen.back()].low;
    for (std::size_t at = 1; at + 1 < chosen.size(); ++at) rest += spans_[chosen[at]].size;
    return rest;
  };
  while (chosen.size() > 2 && excess_without_first() >= wanted) chosen.erase(chosen.begin());
  if (chosen.size() < 2) return Taken();
  Mapping mapping{.base = {}, .spans = std::move(chosen)};
  for (const auto span : mapping.spans) {
    mapping.size += spans_[span].size;
    if (span >= had) ++mapping.grown;
  }
  mapping.middle =
      mapping.size - spans_[mapping.spans.front()].size - spans_[mapping.spans.back()].size;
  if (in_place) {
    mapping.base = {spans_[mapping.spans.front()].address};
    for (const auto span : mapping.spans) {
      if (spans_[span].address != mapping.base.value + mapping.home) break;
      mapping.home += spans_[span].size;
      ++mapping.at_home;
    }
  }
  const bool has_room = has(mapping, wanted, Return::any);
  EMM_ASSERT(has_room || !in_place);
  if (!has_room) return Taken();

  if (!in_place) {
    std::vector<Span> parts;
    for (const auto span : mapping.spans) parts.push_back(spans_[span]);
    auto base = backing_.map_again(parts);
    if (!base) {
      if (base.error().code == Errc::out_of_memory) return Taken();
      return std::move(base).error();
    }
    mapping.base = *base;
  }
  made_ += mapping.again().size();
  mappings_.push_back(std::move(mapping));
  return take_through(mappings_.size() - 1, size, wanted, had);
}

}  // namespace emm::pool
