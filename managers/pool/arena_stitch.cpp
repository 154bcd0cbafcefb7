// Stitched blocks: free ends of spans, and whole spans between them, mapped as one.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/assert.hpp"
#include "managers/pool/arena.hpp"
#include "managers/pool/growth_policy.hpp"
#include "managers/pool/stitch_plan.hpp"

namespace emm::pool {

// Serves the request with a stitched block, in an existing mapping or a new one. Ignores parts
// smaller than `least_part` bytes. Empty if that is impossible or growth is better.
Result<Arena::Allocation> Arena::stitch(const Request& request, std::uint64_t least_part) {
  const auto wanted = request.wanted;
  const auto granule = blocks_.bytes(1);
  if (wanted <= granule) return Allocation();
  ends_.scan(blocks_, spans_, least_part);
  const auto find = [&](Inactive inactive) {
    return stitches_.find(wanted, spans_, ends_, granule, inactive);
  };
  if (const auto found = find(Inactive::as_grown); found != kNone)
    return stitch_in(found, request, spans_.active_count());
  if (spans_.all_are_active()) return stitch_anew(request, least_part);

  // If inactive spans behind the tail can hold it, no mapping is needed.
  const auto missing = wanted - std::min(wanted, free_tail());
  if (spans_.next_inactive_bytes(missing) >= missing) return Allocation();
  if (const auto found = find(Inactive::any); found != kNone)
    return stitch_in(found, request, spans_.active_count());
  return Allocation();
}

// REQUIRES: all spans are active, and ends_ has been scanned.
Result<Arena::Allocation> Arena::stitch_anew(const Request& request, std::uint64_t least_part) {
  if (stitches_.mapped_spans() > growth::kConstants.mapped_spans_most) return Allocation();
  auto& addresses = spans_.addresses();
  auto plan = plan_stitch(blocks_, spans_, ends_,
                          {.wanted = request.wanted,
                           .tail = free_tail(),
                           .end_address = addresses.next(),
                           .prefer_at_home = growth::stitches_often(usage()),
                           .last_resort = least_part == 1});
  if (!plan) return Allocation();

  auto chosen = std::move(plan->spans);
  const auto first_new = spans_.count();
  bool at_home = plan->at_home;
  if (plan->missing > 0) {
    std::vector<Span> behind;
    const auto place = chosen.begin() + static_cast<std::ptrdiff_t>(plan->insert_at);
    for (auto span = place; at_home && span != chosen.end(); ++span)
      behind.push_back(spans_[*span]);
    at_home = at_home && plan->missing + size_of(behind) <= addresses.left();
    if (!at_home) behind.clear();
    const auto grown = add_spans(plan->missing, growth::single_span_limit(usage()), behind);
    if (!grown) {
      if (is_out_of_memory(grown.error())) return Allocation();
      return grown.error();
    }
    std::vector<std::uint32_t> added(spans_.count() - first_new);
    std::iota(added.begin(), added.end(), first_new);
    chosen.insert(place, added.begin(), added.end());
    ends_.scan(blocks_, spans_, least_part);
  }
  drop_excess(chosen, request.wanted, spans_, ends_);
  if (chosen.size() < 2) return Allocation();
  auto mapping = AliasMapping::of(std::move(chosen), spans_, first_new);
  if (at_home) mapping.begin_at_home(spans_);
  const bool has_room =
      holds(mapping, request.wanted, spans_, ends_, blocks_.bytes(1), Inactive::any);
  EMM_ASSERT(has_room || !at_home);
  if (!has_room) return Allocation();

  if (!at_home) {
    std::vector<Span> mapped;
    for (const auto span : mapping.spans) mapped.push_back(spans_[span]);
    const auto base = backing_.map_alias(mapped);
    if (!base) {
      if (is_out_of_memory(base.error())) return Allocation();
      return base.error();
    }
    mapping.base = *base;
  }
  generation_.note_mapped(mapping.aliased().size());
  return stitch_in(stitches_.add(std::move(mapping)), request, first_new);
}

// Serves the request from a mapping, and records how. `active_before` counts the spans that were
// active when the request came. REQUIRES: the mapping is large enough for it.
Arena::Allocation Arena::stitch_in(std::uint32_t index, const Request& request,
                                   std::uint32_t active_before) {
  const auto& mapping = stitches_[index];
  const auto highest = *std::max_element(mapping.spans.begin(), mapping.spans.end());
  StitchRecord record{.wanted = request.wanted,
                      .mapping = index,
                      .active_before = active_before,
                      .active_needed = std::max(spans_.active_count(), highest + 1)};
  while (spans_.active_count() < record.active_needed) {
    activate(spans_.next_run_before(record.active_needed));
    ends_.add(blocks_, spans_, blocks_.last());
  }
  record.address = place_in(mapping, request.wanted, spans_, ends_, blocks_.bytes(1), parts_);
  return use_parts(record, request.size, parts_);
}

// REQUIRES: the parts are free.
Arena::Allocation Arena::use_parts(const StitchRecord& record, std::uint64_t size,
                                   std::span<const StitchedPart> parts) {
  generation_.note_stitched(stitches_.use_in(generation_.number(), record.mapping));
  const auto index = stitched_.add();
  auto& stitched = stitched_[index];
  stitched.address = record.address;
  stitched.requested = size;
  for (const auto& part : parts) {
    auto block = part.block;
    // An earlier part may have been carved out of the same free block. This part then lies in the
    // rest behind it.
    while (blocks_.end(block) <= part.start) block = blocks_.after(block);
    const auto taken = blocks_.carve(block, part.start, blocks_.granules(part.end - part.start));
    blocks_.set_payload(taken, 0);
    stitched.parts.push_back(taken);
  }
  const auto first = stitched.parts.front();
  blocks_.set_payload(first, kStitched | index);
  stitches_.remember(record, parts);
  count(size, record.wanted);
  return {.address = record.address, .cookie = blocks_.cookie(first), .mark = epoch_.mark()};
}

}  // namespace emm::pool
