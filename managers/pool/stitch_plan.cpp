#include "managers/pool/stitch_plan.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace emm::pool {
namespace {

/// A free run, and the spans that lie wholly in it.
struct Candidate {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t whole_start =
      0;  ///< The first start of a span in the run; the run's end if it has none.
  std::uint64_t whole_end = 0;  ///< The last end of a span in it.
  std::uint64_t as_first() const noexcept { return whole_end > start ? whole_end - start : 0; }
  std::uint64_t as_last() const noexcept { return end > whole_start ? end - whole_start : 0; }
  std::uint64_t whole() const noexcept {
    return whole_end > whole_start ? whole_end - whole_start : 0;
  }
  std::uint64_t part_before() const noexcept { return as_first() - whole(); }
  std::uint64_t part_behind() const noexcept { return as_last() - whole(); }
};

/// The runs at both ends of the block. Null if the block begins or ends with a whole span.
struct Outer {
  const Candidate* first = nullptr;
  const Candidate* last = nullptr;
  /// The start of the last run in the block. A run that is both first and last counts its whole
  /// spans as the first run's.
  std::uint64_t last_start() const noexcept {
    return last == first ? last->whole_end : last->whole_start;
  }
  std::uint64_t last_bytes() const noexcept {
    return last != nullptr ? last->end - last_start() : 0;
  }
  std::uint64_t partial_bytes() const noexcept {
    return (first != nullptr ? first->part_before() : 0) +
           (last != nullptr ? last->part_behind() : 0);
  }
};

std::vector<Candidate> candidates_of(const BlockMap& blocks, const SpanList& spans,
                                     const SpanEnds& ends) {
  std::vector<Candidate> candidates;
  for (const auto& run : ends.runs()) {
    Candidate candidate{.start = blocks.address(run.block), .end = blocks.end(run.block)};
    const auto& first = spans[run.first_span];
    const auto& last = spans[run.last_span];
    candidate.whole_start = candidate.start == first.address ? candidate.start : first.end();
    candidate.whole_end = candidate.end == last.end() ? candidate.end : last.address;
    if (candidate.as_first() > 0 || candidate.as_last() > 0) candidates.push_back(candidate);
  }
  return candidates;
}

// One run may be the best for both ends. It then takes one end, and the next best run the other. As
// a last resort it takes both ends, with other memory mapped between them.
Outer choose_outer(std::span<const Candidate> candidates, bool last_resort) noexcept {
  const auto most = [&](auto part, const Candidate* but) {
    const Candidate* found = nullptr;
    for (const auto& candidate : candidates) {
      if (&candidate != but && (candidate.*part)() > 0 &&
          (found == nullptr || (candidate.*part)() > (found->*part)()))
        found = &candidate;
    }
    return found;
  };
  const Outer best{most(&Candidate::part_before, nullptr), most(&Candidate::part_behind, nullptr)};
  if (best.first != best.last) return best;
  const Outer as_first{best.first, most(&Candidate::part_behind, best.first)};
  const Outer as_last{most(&Candidate::part_before, best.last), best.last};
  const auto two = as_last.partial_bytes() > as_first.partial_bytes() ? as_last : as_first;
  return last_resort && best.partial_bytes() > two.partial_bytes() ? best : two;
}

const Candidate* run_that_ends_at(std::span<const Candidate> candidates,
                                  std::uint64_t end) noexcept {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const auto& candidate) { return candidate.end == end; });
  return found != candidates.end() ? &*found : nullptr;
}

/// The chosen spans, one run after the other.
class Choice {
 public:
  explicit Choice(const SpanList& spans) noexcept : list_(&spans) {}
  void add(std::uint64_t start, std::uint64_t end) {
    bytes_ += end - start;
    while (start < end) {
      spans_.push_back(list_->at(start));
      start = (*list_)[spans_.back()].end();
    }
  }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::size_t count() const noexcept { return spans_.size(); }
  std::vector<std::uint32_t> take() noexcept { return std::move(spans_); }

 private:
  const SpanList* list_;
  std::vector<std::uint32_t> spans_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::optional<StitchPlan> plan_stitch(const BlockMap& blocks, const SpanList& spans,
                                      const SpanEnds& ends, const StitchRequest& request) {
  const auto wanted = request.wanted;
  const auto candidates = candidates_of(blocks, spans, ends);
  if (candidates.empty()) return {};
  std::vector<const Candidate*> between;  // the largest first
  for (const auto& candidate : candidates) {
    if (candidate.whole() > 0) between.push_back(&candidate);
  }
  std::sort(between.begin(), between.end(), [](const Candidate* a, const Candidate* b) {
    return a->whole() != b->whole() ? a->whole() > b->whole() : a->start < b->start;
  });

  struct Chosen {
    Choice choice;  // all but the last run
    std::size_t behind_first = 0;
    std::uint64_t missing = 0;
  };
  const auto choose = [&](const Outer& outer) {
    Chosen chosen{.choice = Choice(spans)};
    auto& choice = chosen.choice;
    if (outer.first != nullptr) choice.add(outer.first->start, outer.first->whole_end);
    chosen.behind_first = choice.count();
    const auto enough = wanted - std::min(wanted, outer.last_bytes());
    for (const auto* run : between) {
      if (choice.bytes() >= enough) break;
      if (run != outer.first && run != outer.last) choice.add(run->whole_start, run->whole_end);
    }
    chosen.missing = Backing::in_pages(enough - std::min(enough, choice.bytes()));
    return chosen;
  };
  auto outer = choose_outer(candidates, request.last_resort);
  auto chosen = choose(outer);
  // To be at home, new spans must follow the last run of addresses, even if another run would be a
  // better first. That costs memory, so it is not done as a last resort.
  const bool at_home = chosen.missing > 0 && request.prefer_at_home && !request.last_resort;
  if (at_home) {
    outer.first = run_that_ends_at(candidates, request.end_address);
    chosen = choose(outer);
  }
  const auto missing = chosen.missing;
  if (missing > 0 && missing >= Backing::in_pages(wanted - request.tail)) return {};

  StitchPlan plan{.missing = missing, .at_home = at_home};
  plan.insert_at = at_home ? chosen.behind_first : chosen.choice.count();
  const bool needs_last = at_home || chosen.choice.bytes() + missing < wanted;
  if (outer.last != nullptr && needs_last) chosen.choice.add(outer.last_start(), outer.last->end);
  plan.spans = chosen.choice.take();
  return plan;
}

void drop_excess(std::vector<std::uint32_t>& chosen, std::uint64_t wanted, const SpanList& spans,
                 const SpanEnds& ends) {
  const auto bytes_without_first = [&] {
    auto sum = ends.of(chosen.back()).low;
    for (std::size_t at = 1; at + 1 < chosen.size(); ++at) sum += spans[chosen[at]].size;
    return sum;
  };
  while (chosen.size() > 2 && bytes_without_first() >= wanted) chosen.erase(chosen.begin());
}

}  // namespace emm::pool
