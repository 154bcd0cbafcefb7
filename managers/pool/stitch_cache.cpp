#include "managers/pool/stitch_cache.hpp"

#include <algorithm>
#include <utility>

#include "managers/pool/growth_policy.hpp"

namespace emm::pool {

AliasMapping AliasMapping::of(std::vector<std::uint32_t> spans, const SpanList& list,
                              std::uint32_t first_new) {
  AliasMapping mapping{.spans = std::move(spans)};
  for (const auto span : mapping.spans) {
    mapping.size += list[span].size;
    if (span >= first_new) ++mapping.grown;
  }
  mapping.middle =
      mapping.size - list[mapping.spans.front()].size - list[mapping.spans.back()].size;
  return mapping;
}

void AliasMapping::begin_at_home(const SpanList& list) {
  base = {list[spans.front()].address};
  for (const auto span : spans) {
    if (list[span].address != base.value + home) break;
    home += list[span].size;
    ++at_home;
  }
}

bool holds(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
           const SpanEnds& ends, std::uint64_t granule, Inactive inactive) noexcept {
  // The first and the last span hold a part each, so the spans between must leave room for both.
  if (mapping.size < wanted || mapping.middle + granule >= wanted) return false;
  std::uint32_t inactive_count = 0;
  std::uint32_t highest = 0;
  const auto ends_of = [&](std::uint32_t span) -> SpanEnds::Ends {
    if (spans.is_active(span)) return ends.of(span);
    ++inactive_count;
    highest = std::max(highest, span);
    return {.low = spans[span].size, .high = spans[span].size};
  };
  const auto first = mapping.spans.front();
  const auto last = mapping.spans.back();
  const auto high = ends_of(first).high;
  const auto low = ends_of(last).low;
  if (high == 0 || low == 0 || high + mapping.middle + low < wanted) return false;
  if (first == last && high == spans[first].size) return false;
  for (std::size_t at = 1; at + 1 < mapping.spans.size(); ++at) {
    const auto span = mapping.spans[at];
    if (ends_of(span).low < spans[span].size) return false;
  }
  if (inactive_count == 0) return true;
  const bool are_next = highest + 1 - spans.active_count() == inactive_count;
  return are_next && (inactive == Inactive::any || inactive_count == mapping.grown);
}

DevicePtr place_in(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
                   const SpanEnds& ends, std::uint64_t granule, std::vector<StitchedPart>& parts) {
  const auto first = mapping.spans.front();
  const auto last = mapping.spans.back();
  const auto rest = wanted - mapping.middle;
  const bool first_is_whole = ends.of(first).high == spans[first].size;
  const bool last_is_whole = ends.of(last).low == spans[last].size;
  const auto upper = first_is_whole && !last_is_whole
                         ? std::min(ends.of(last).low, rest - granule)
                         : rest - std::min(ends.of(first).high, rest - granule);
  const auto lower = rest - upper;

  // Runs that are contiguous both in the mapping and in the arena are one part.
  parts.clear();
  StitchedPart part{.start = spans[first].end() - lower,
                    .end = spans[first].end(),
                    .block = ends.of(first).high_block};
  for (std::size_t at = 1; at < mapping.spans.size(); ++at) {
    const auto& span = spans[mapping.spans[at]];
    const auto block = ends.of(mapping.spans[at]).low_block;
    const auto end = at + 1 == mapping.spans.size() ? span.address + upper : span.end();
    if (span.address != part.end || block != part.block) {
      parts.push_back(part);
      part = {.start = span.address, .end = end, .block = block};
    }
    part.end = end;
  }
  parts.push_back(part);
  return mapping.base + (spans[first].size - lower);
}

std::size_t StitchCache::mapped_spans() const noexcept {
  std::size_t sum = 0;
  for (const auto& mapping : mappings_) sum += mapping.spans.size();
  return sum;
}

std::uint32_t StitchCache::find(std::uint64_t wanted, const SpanList& spans, const SpanEnds& ends,
                                std::uint64_t granule, Inactive inactive) const noexcept {
  for (std::uint32_t at = 0; at < mappings_.size(); ++at) {
    if (holds(mappings_[at], wanted, spans, ends, granule, inactive)) return at;
  }
  return kNone;
}

std::uint64_t StitchCache::use_in(std::uint64_t generation, std::uint32_t mapping) noexcept {
  auto& used = mappings_[mapping];
  return std::exchange(used.generation, generation) != generation ? used.spans.size() : 0;
}

std::span<const StitchedPart> StitchCache::expected_parts() const noexcept {
  const auto at = now_.records.size();
  const auto first = at > 0 ? last_.parts_end[at - 1] : 0;
  return std::span(last_.parts).subspan(first, last_.parts_end[at] - first);
}

void StitchCache::remember(const StitchRecord& record, std::span<const StitchedPart> parts) {
  if (now_.records.size() >= growth::kConstants.requests_remembered) return;
  now_.records.push_back(record);
  now_.parts.insert(now_.parts.end(), parts.begin(), parts.end());
  now_.parts_end.push_back(static_cast<std::uint32_t>(now_.parts.size()));
}

void StitchCache::begin_generation() noexcept {
  std::swap(last_, now_);
  now_.clear();
}

std::vector<AliasMapping> StitchCache::take_mappings_of(const std::vector<std::uint32_t>& gone,
                                                        std::size_t span_count) {
  forget_history();
  std::vector<bool> is_gone(span_count, false);
  for (const auto span : gone) is_gone[span] = true;
  std::vector<AliasMapping> taken, kept;
  for (auto& mapping : mappings_) {
    const bool goes = std::any_of(mapping.spans.begin(), mapping.spans.end(),
                                  [&](std::uint32_t span) { return is_gone[span]; });
    (goes ? taken : kept).push_back(std::move(mapping));
  }
  mappings_ = std::move(kept);
  return taken;
}

void StitchCache::rename_spans(const std::vector<std::uint32_t>& new_index) noexcept {
  for (auto& mapping : mappings_) {
    for (auto& span : mapping.spans) span = new_index[span];
  }
}

std::uint64_t StitchCache::History::metadata_bytes() const noexcept {
  return records.capacity() * sizeof(StitchRecord) + parts_end.capacity() * sizeof(std::uint32_t) +
         parts.capacity() * sizeof(StitchedPart);
}

std::uint64_t StitchCache::metadata_bytes() const noexcept {
  auto sum =
      mappings_.capacity() * sizeof(AliasMapping) + last_.metadata_bytes() + now_.metadata_bytes();
  for (const auto& mapping : mappings_) sum += mapping.spans.capacity() * sizeof(std::uint32_t);
  return sum;
}

}  // namespace emm::pool
