#include "driver/free_addresses.hpp"

#include <algorithm>
#include <iterator>

namespace emm {

void FreeAddresses::release(std::uint64_t at, std::uint64_t size) {
  auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == at + size) {
    size += next->second;
    by_size_.erase({next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == at) {
      at = previous->first;
      size += previous->second;
      by_size_.erase({previous->second, previous->first});
      free_.erase(previous);
    }
  }
  free_.emplace(at, size);
  by_size_.emplace(size, at);
}

// A range surely fits if it holds the size plus the most that alignment can cost. The smallest
// range of the bare size is tried first, since it may happen to be aligned.
std::optional<std::uint64_t> FreeAddresses::take(std::uint64_t size, std::uint64_t alignment) {
  const auto aligned = [&](std::uint64_t at) { return (at + alignment - 1) & ~(alignment - 1); };
  auto fit = by_size_.lower_bound({size, 0});
  if (fit != by_size_.end() && aligned(fit->second) - fit->second > fit->first - size)
    fit = by_size_.lower_bound({size + alignment - 1, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto range = fit->second;
  take_from(range, aligned(range), size);
  return aligned(range);
}

bool FreeAddresses::take_at(std::uint64_t at, std::uint64_t size) {
  auto range = free_.upper_bound(at);
  if (range == free_.begin()) return false;
  --range;
  const auto offset = at - range->first;
  if (offset > range->second || size > range->second - offset) return false;
  take_from(range->first, at, size);
  return true;
}

std::optional<std::uint64_t> FreeAddresses::take_highest(std::uint64_t size,
                                                         std::uint64_t besides) {
  for (auto range = free_.rbegin(); range != free_.rend(); ++range) {
    const auto [at, length] = *range;
    if (length < besides || length - besides < size) continue;
    take_from(at, at + length - size, size);
    return at + length - size;
  }
  return std::nullopt;
}

void FreeAddresses::remove(std::uint64_t begin, std::uint64_t end) {
  auto range = free_.upper_bound(begin);
  if (range != free_.begin()) --range;
  while (range != free_.end() && range->first < end) {
    const auto [at, length] = *range;
    ++range;
    const auto first = std::max(at, begin), past = std::min(at + length, end);
    if (first < past) take_from(at, first, past - first);
  }
}

void FreeAddresses::take_from(std::uint64_t range, std::uint64_t at, std::uint64_t size) {
  const auto found = free_.find(range);
  const auto end = found->first + found->second;
  by_size_.erase({found->second, range});
  free_.erase(found);
  const auto put = [&](std::uint64_t begin, std::uint64_t past) {
    if (begin == past) return;
    free_.emplace(begin, past - begin);
    by_size_.emplace(past - begin, begin);
  };
  put(range, at);
  put(at + size, end);
}

}  // namespace emm
