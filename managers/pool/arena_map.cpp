// What an arena says of itself.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {
namespace {

template <class T>
std::uint64_t bytes_of(const std::vector<T>& vector) noexcept {
  return vector.capacity() * sizeof(T);
}

}  // namespace

Statistics::Count& Statistics::Count::operator+=(const Count& other) noexcept {
  current += other.current;
  peak += other.peak;
  total += other.total;
  return *this;
}

Statistics& Statistics::operator+=(const Statistics& other) noexcept {
  requested += other.requested;
  allocated += other.allocated;
  allocation += other.allocation;
  active += other.active;
  active_allocation += other.active_allocation;
  reserved += other.reserved;
  inactive_split += other.inactive_split;
  inactive_split_blocks += other.inactive_split_blocks;
  segments += other.segments;
  largest_free = std::max(largest_free, other.largest_free);
  spans += other.spans;
  mappings += other.mappings;
  metadata += other.metadata;
  metadata_fixed += other.metadata_fixed;
  return *this;
}

// While what is parked stays as it is, what is active has its peak where what is allocated has.
void Arena::before_parked_changes() noexcept {
  const auto fold = [](Statistics::Count& peak, Statistics::Count& active,
                       const Statistics::Count& since, std::uint64_t parked) {
    peak.peak = std::max(peak.peak, since.peak);
    active.peak = std::max(active.peak, since.peak + parked);
  };
  fold(peaks_.allocated, peaks_.active, statistics_.allocated, parked_bytes_);
  fold(peaks_.allocation, peaks_.active_allocation, statistics_.allocation, parked_count_);
}

void Arena::after_parked_changed() noexcept {
  statistics_.allocated.peak = statistics_.allocated.current;
  statistics_.allocation.peak = statistics_.allocation.current;
}

Statistics Arena::statistics() {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  before_parked_changes();
  auto result = statistics_;
  const auto active = [](Statistics::Count allocated, std::uint64_t parked, std::uint64_t peak) {
    return Statistics::Count{allocated.current + parked, peak, allocated.total};
  };
  result.active = active(result.allocated, parked_bytes_, peaks_.active.peak);
  result.active_allocation =
      active(result.allocation, parked_count_, peaks_.active_allocation.peak);
  result.allocated.peak = peaks_.allocated.peak;
  result.allocation.peak = peaks_.allocation.peak;

  for (const auto& span : spans_) result.reserved += span.size;
  count_split();
  result.inactive_split = statistics_.inactive_split;
  result.inactive_split_blocks = statistics_.inactive_split_blocks;
  result.largest_free = largest_free();
  result.spans = spans_.size();
  for (const auto& mapping : mappings_) result.mappings += mapping.again().size();
  result.metadata = metadata_bytes();
  result.metadata_fixed = sizeof *this - sizeof blocks_ + Blocks::fixed_metadata_bytes();
  return result;
}

// A look at all that is free.
void Arena::count_split() noexcept {
  std::uint64_t bytes = 0, blocks = 0;
  blocks_.for_each_hole([&](std::uint64_t address, std::uint64_t size) {
    auto rest = size;
    auto place = by_address_.begin() + place_from(address);
    for (; place != by_address_.end() && spans_[*place].end() <= address + size; ++place) {
      rest -= spans_[*place].size;
    }
    if (rest > 0) ++blocks;
    bytes += rest;
  });
  statistics_.inactive_split.become(bytes);
  statistics_.inactive_split_blocks.become(blocks);
}

void Arena::count_segments() noexcept {
  std::uint64_t count = 0, end = 0;
  for (const auto span : by_address_) {
    if (!follows(spans_[span], end)) ++count;
    end = spans_[span].end();
  }
  statistics_.segments.become(count);
}

// Spans out of play join what is free at the end of those in play.
std::uint64_t Arena::largest_free() const noexcept {
  const auto last = blocks_.last();
  const auto in_use_to = last == kNone ? 0 : end_of(last);
  std::uint64_t largest = 0, run = 0;
  blocks_.for_each_hole([&](std::uint64_t address, std::uint64_t size) {
    largest = std::max(largest, size);
    if (address + size == in_use_to) run = size;
  });
  auto end = run > 0 ? in_use_to : 0;
  for (auto span = playing_; span < spans_.size(); ++span) {
    run = follows(spans_[span], end) ? run + spans_[span].size : spans_[span].size;
    end = spans_[span].end();
    largest = std::max(largest, run);
  }
  return largest;
}

std::uint64_t Arena::metadata_bytes() const noexcept {
  auto sum = blocks_.metadata_bytes() + bytes_of(parked_) + bytes_of(ending_) + bytes_of(spans_) +
             bytes_of(mappings_) + bytes_of(composites_) + bytes_of(idle_composites_) +
             bytes_of(before_.uses) + bytes_of(before_.parts) + bytes_of(uses_.uses) +
             bytes_of(uses_.parts) + bytes_of(by_address_) + bytes_of(ends_) + bytes_of(holes_) +
             bytes_of(touched_) + bytes_of(ranges_);
  for (const auto& mapping : mappings_) sum += bytes_of(mapping.spans);
  for (const auto& range : ranges_) sum += bytes_of(range.spans);
  for (const auto& composite : composites_) sum += bytes_of(composite.parts);
  return sum;
}

// What cuMemAlloc gave is apart, wherever it lies.
bool Arena::follows(const Span& span, std::uint64_t end) const noexcept {
  return span.address == end && span.handle != PhysicalHandle{};
}

MemoryMap::Block Arena::described(std::uint32_t block) const noexcept {
  MemoryMap::Block result{.address = blocks_.address(block),
                          .size = blocks_.bytes(blocks_.size(block))};
  if (blocks_.state(block) == Blocks::State::used) {
    result.state = MemoryMap::State::active_allocated;
    result.requested_size = blocks_.note(block);
  } else if (blocks_.state(block) == Blocks::State::parked) {
    result.state = MemoryMap::State::active_awaiting_free;
  }
  return result;
}

// The blocks of each: what was asked for is in the first of them, as far as it goes.
void Arena::add_composites(MemoryMap& map, std::vector<MemoryMap::Block>& blocks) const {
  for (const auto& composite : composites_) {
    if (composite.parts.empty()) continue;
    const auto index = static_cast<std::uint32_t>(map.composites.size());
    auto& entry = map.composites.emplace_back();
    entry.address = composite.address.value;
    entry.requested_size = composite.requested;
    entry.stream = stream_;
    auto rest = composite.requested;
    for (const auto part : composite.parts) {
      auto& block = blocks.emplace_back(described(part));
      block.requested_size = std::min(rest, block.size);
      block.composite = index;
      rest -= block.requested_size;
      entry.size += block.size;
      entry.parts.push_back({block.address, block.size});
    }
  }
}

void Arena::add_to(MemoryMap& map) {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  std::vector<MemoryMap::Block> blocks;
  add_composites(map, blocks);
  blocks_.for_each([&](std::uint32_t block) {
    const auto part = blocks_.note(block) == 0 || (blocks_.note(block) & kComposite) != 0;
    const auto state = blocks_.state(block);
    if (state == Blocks::State::parked || (state == Blocks::State::used && !part))
      blocks.push_back(described(block));
  });
  blocks_.for_each_hole([&](std::uint64_t address, std::uint64_t size) {
    blocks.push_back({.address = address, .size = size});
  });
  for (auto span = playing_; span < spans_.size(); ++span) {
    blocks.push_back({.address = spans_[span].address, .size = spans_[span].size});
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });

  std::vector<std::uint64_t> mapped(spans_.size(), 1);
  for (const auto& mapping : mappings_) {
    auto& entry = map.mappings.emplace_back();
    entry.address = mapping.base.value;
    for (const auto span : mapping.again()) ++mapped[span];
    for (const auto span : mapping.spans) {
      entry.size += spans_[span].size;
      entry.pieces.push_back(spans_[span].address);
    }
  }
  auto block = blocks.begin();
  const auto first = map.segments.size();
  for (const auto index : by_address_) {
    const auto& span = spans_[index];
    const auto end =
        map.segments.size() == first ? 0 : map.segments.back().address + map.segments.back().size;
    if (!follows(span, end)) {
      map.segments.push_back({.address = span.address, .size = 0, .stream = stream_});
    }
    auto& segment = map.segments.back();
    segment.size += span.size;
    segment.pieces.push_back({span.address, span.size, span.handle.value, mapped[index]});
    for (; block != blocks.end() && block->address < span.end(); ++block) {
      segment.blocks.push_back(*block);
    }
  }
}

}  // namespace emm::pool
