// What an arena reports: statistics and the memory map.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

Statistics Arena::statistics() {
  const std::lock_guard lock(lock_);
  make_remote_frees();
  const PlanInBlocks in_blocks(*this);
  count_split();
  auto result = counts_.total(deferred_.bytes(), deferred_.count());
  result.arenas_with_a_peak = result.allocation.peak != 0 ? 1 : 0;
  result.reserved_bytes = spans_.bytes();
  result.largest_free_bytes = largest_free();
  result.spans = spans_.count();
  for (const auto& mapping : stitches_.mappings()) result.times_aliased += mapping.aliased().size();
  result.metadata_bytes = metadata_bytes();
  if (plan_ != nullptr) {
    result.planned = plan_->times_taken();
    result.plan_left = plan_->deviations();
  }
  result.metadata_fixed_bytes = sizeof *this - sizeof blocks_ + BlockMap::fixed_metadata_bytes();
  return result;
}

void Arena::reset_peaks() {
  const std::lock_guard lock(lock_);
  make_remote_frees();
  counts_.reset_peaks();
}

// Counts the free bytes, and the blocks with such bytes, that are not in wholly free spans. Walks
// all free blocks.
void Arena::count_split() noexcept {
  std::uint64_t bytes = 0, blocks = 0;
  blocks_.for_each_free_block([&](std::uint64_t address, std::uint64_t size) {
    auto split = size;
    spans_.for_each_within(address, address + size,
                           [&](std::uint32_t span) { split -= spans_[span].size; });
    if (split > 0) ++blocks;
    bytes += split;
  });
  counts_.set_split(bytes, blocks);
}

// Inactive spans may continue the free run at the end of the active ones.
std::uint64_t Arena::largest_free() const noexcept {
  const auto last = blocks_.last();
  const auto active_end = last == kNone ? 0 : blocks_.end(last);
  std::uint64_t largest = 0, run = 0;
  blocks_.for_each_free_block([&](std::uint64_t address, std::uint64_t size) {
    largest = std::max(largest, size);
    if (address + size == active_end) run = size;
  });
  auto end = run > 0 ? active_end : 0;
  for (auto index = spans_.active_count(); index < spans_.count(); ++index) {
    const auto& span = spans_[index];
    run = SpanList::continues(span, end) ? run + span.size : span.size;
    end = span.end();
    largest = std::max(largest, run);
  }
  return largest;
}

std::uint64_t Arena::metadata_bytes() const noexcept {
  return blocks_.metadata_bytes() + deferred_.metadata_bytes() + remote_frees_.metadata_bytes() +
         spans_.metadata_bytes() + stitches_.metadata_bytes() + stitched_.metadata_bytes() +
         ends_.metadata_bytes() + parts_.capacity() * sizeof(StitchedPart) +
         (plan_ != nullptr ? plan_->metadata_bytes() : 0);
}

MemoryMap::Block Arena::describe(std::uint32_t block) const noexcept {
  MemoryMap::Block result{.address = blocks_.address(block), .size = blocks_.bytes_of(block)};
  if (blocks_.state(block) == BlockMap::State::used) {
    result.state = MemoryMap::State::active_allocated;
    result.requested_size = blocks_.payload(block);
  } else if (blocks_.state(block) == BlockMap::State::deferred) {
    result.state = MemoryMap::State::active_awaiting_free;
  }
  return result;
}

// Adds the stitched blocks to `map` and their parts to `blocks`. The requested bytes fill the parts
// from the first one on.
void Arena::add_stitched_blocks(MemoryMap& map, std::vector<MemoryMap::Block>& blocks) const {
  for (const auto& stitched : stitched_.all()) {
    if (stitched.parts.empty()) continue;
    const auto index = static_cast<std::uint32_t>(map.stitched_blocks.size());
    auto& entry = map.stitched_blocks.emplace_back();
    entry.address = stitched.address.value;
    entry.requested_size = stitched.requested;
    entry.stream = stream();
    auto rest = stitched.requested;
    for (const auto part : stitched.parts) {
      auto& block = blocks.emplace_back(describe(part));
      block.requested_size = std::min(rest, block.size);
      block.stitched_block = index;
      rest -= block.requested_size;
      entry.size += block.size;
      entry.parts.push_back({block.address, block.size});
    }
  }
}

// All blocks by address. An inactive span is one block.
std::vector<MemoryMap::Block> Arena::describe_all(MemoryMap& map) const {
  std::vector<MemoryMap::Block> blocks;
  add_stitched_blocks(map, blocks);
  blocks_.for_each([&](std::uint32_t block) {
    const auto state = blocks_.state(block);
    const auto payload = blocks_.payload(block);
    const bool is_part = payload == 0 || (payload & kStitched) != 0;
    if (state == BlockMap::State::deferred || (state == BlockMap::State::used && !is_part))
      blocks.push_back(describe(block));
  });
  blocks_.for_each_free_block([&](std::uint64_t address, std::uint64_t size) {
    blocks.push_back({.address = address, .size = size});
  });
  for (auto span = spans_.active_count(); span < spans_.count(); ++span) {
    blocks.push_back({.address = spans_[span].address, .size = spans_[span].size});
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  return blocks;
}

void Arena::add_to(MemoryMap& map) {
  const std::lock_guard lock(lock_);
  make_remote_frees();
  const PlanInBlocks in_blocks(*this);
  const auto blocks = describe_all(map);

  std::vector<std::uint64_t> times_mapped(spans_.count(), 1);
  for (const auto& mapping : stitches_.mappings()) {
    auto& entry = map.alias_mappings.emplace_back();
    entry.address = mapping.base.value;
    entry.size = mapping.size;
    for (const auto span : mapping.aliased()) ++times_mapped[span];
    for (const auto span : mapping.spans) entry.pieces.push_back(spans_[span].address);
  }

  auto block = blocks.begin();
  std::uint64_t end = 0;
  for (const auto index : spans_.by_address()) {
    const auto& span = spans_[index];
    if (!SpanList::continues(span, end))
      map.segments.push_back({.address = span.address, .size = 0, .stream = stream()});
    end = span.end();
    auto& segment = map.segments.back();
    segment.size += span.size;
    segment.pieces.push_back({span.address, span.size, span.handle.value, times_mapped[index]});
    for (; block != blocks.end() && block->address < span.end(); ++block)
      segment.blocks.push_back(*block);
  }
}

}  // namespace emm::pool
