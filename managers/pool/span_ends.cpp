#include "managers/pool/span_ends.hpp"

#include <algorithm>

namespace emm::pool {
namespace {

// Spans begin and end at whole pages, so a block that reaches no page boundary touches no end.
constexpr bool may_touch_an_end(std::uint64_t start, std::uint64_t end) noexcept {
  return Backing::in_pages(start) <= end;
}

}  // namespace

// Returns kNone as the block if it lies in the middle of a span. Inlined, because a scan may look
// at thousands of blocks.
[[gnu::always_inline]] inline SpanEnds::FreeRun SpanEnds::look_at(const BlockMap& blocks,
                                                                  const SpanList& spans,
                                                                  std::uint32_t block) {
  auto start = blocks.address(block);
  const auto end = start + blocks.bytes_of(block);
  if (!may_touch_an_end(start, end)) return {};
  auto index = spans.at(start);
  if (start != spans[index].address && end < spans[index].end()) return {};
  FreeRun run{.block = block, .first_span = index, .last_span = index};
  for (;;) {
    touched_.push_back(index);
    const auto span = spans[index];
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
    if (start >= end) return run;
    index = spans.at(start);
    run.last_span = index;
  }
}

void SpanEnds::scan(const BlockMap& blocks, const SpanList& spans, std::uint64_t least) {
  for (const auto span : touched_) ends_[span] = {};
  touched_.clear();
  runs_.clear();
  ends_.resize(spans.count());
  blocks.for_each_free(blocks.granules(least), [&](std::uint32_t block) {
    const auto run = look_at(blocks, spans, block);
    if (run.block != kNone) runs_.push_back(run);
  });
}

void SpanEnds::add(const BlockMap& blocks, const SpanList& spans, std::uint32_t block) {
  (void)look_at(blocks, spans, block);
}

void SpanEnds::clear() noexcept {
  ends_.clear();
  runs_.clear();
  touched_.clear();
}

std::uint64_t SpanEnds::metadata_bytes() const noexcept {
  return ends_.capacity() * sizeof(Ends) + runs_.capacity() * sizeof(FreeRun) +
         touched_.capacity() * sizeof(std::uint32_t);
}

}  // namespace emm::pool
