#include "driver/sim/chunk.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace emm::sim {

std::uint32_t Chunk::take(std::uint32_t units) {
  const auto range = std::find_if(free_.begin(), free_.end(),
                                  [&](const FreeUnits& h) { return h.units >= units; });
  EMM_ASSERT(range != free_.end());
  const std::uint32_t first = range->first;
  const bool was_longest = range->units == longest_;
  if (range->units == units) {
    free_.erase(range);
  } else {
    range->first = static_cast<std::uint16_t>(range->first + units);
    range->units = static_cast<std::uint16_t>(range->units - units);
  }
  if (was_longest) find_longest();
  begins_[first / 64] |= std::uint64_t{1} << (first % 64);
  return first;
}

void Chunk::release(std::uint32_t first, std::uint32_t units) {
  begins_[first / 64] &= ~(std::uint64_t{1} << (first % 64));
  auto next = std::lower_bound(
      free_.begin(), free_.end(), first,
      [](const FreeUnits& range, std::uint32_t unit) { return range.first < unit; });
  const bool joins_next = next != free_.end() && first + units == next->first;
  const bool joins_previous =
      next != free_.begin() && std::prev(next)->first + std::prev(next)->units == first;
  if (joins_previous) {
    auto previous = std::prev(next);
    previous->units =
        static_cast<std::uint16_t>(previous->units + units + (joins_next ? next->units : 0));
    longest_ = std::max(longest_, previous->units);
    if (joins_next) free_.erase(next);
  } else if (joins_next) {
    next->first = static_cast<std::uint16_t>(first);
    next->units = static_cast<std::uint16_t>(next->units + units);
    longest_ = std::max(longest_, next->units);
  } else {
    free_.insert(next, {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(units)});
    longest_ = std::max(longest_, static_cast<std::uint16_t>(units));
  }
}

std::uint32_t Chunk::begin_at_or_below(std::uint32_t unit) const noexcept {
  auto word = unit / 64;
  auto bits = begins_[word] & (~std::uint64_t{0} >> (63 - unit % 64));
  while (bits == 0) {
    if (word == 0) return kUnits;
    bits = begins_[--word];
  }
  return word * 64 + static_cast<std::uint32_t>(63 - std::countl_zero(bits));
}

void Chunk::find_longest() noexcept {
  longest_ = 0;
  for (const auto& range : free_) longest_ = std::max(longest_, range.units);
}

}  // namespace emm::sim
