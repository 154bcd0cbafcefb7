#include "driver/sim/holes.hpp"

#include <iterator>

namespace emm::sim {

void Holes::give(std::uint64_t at, std::uint64_t size) {
  auto next = holes_.lower_bound(at);
  if (next != holes_.end() && next->first == at + size) {
    size += next->second;
    by_size_.erase({next->second, next->first});
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == at) {
      at = previous->first;
      size += previous->second;
      by_size_.erase({previous->second, previous->first});
      holes_.erase(previous);
    }
  }
  holes_.emplace(at, size);
  by_size_.emplace(size, at);
}

// A hole that holds the size and all that alignment could cost is sure to do; one that is the size
// and happens to be aligned does too.
std::optional<std::uint64_t> Holes::take(std::uint64_t size, std::uint64_t alignment) {
  const auto aligned = [&](std::uint64_t at) { return (at + alignment - 1) & ~(alignment - 1); };
  auto fit = by_size_.lower_bound({size, 0});
  if (fit != by_size_.end() && aligned(fit->second) - fit->second > fit->first - size)
    fit = by_size_.lower_bound({size + alignment - 1, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto hole = fit->second;
  take_from(hole, aligned(hole), size);
  return aligned(hole);
}

bool Holes::take_at(std::uint64_t at, std::uint64_t size) {
  auto hole = holes_.upper_bound(at);
  if (hole == holes_.begin()) return false;
  --hole;
  const auto offset = at - hole->first;
  if (offset > hole->second || size > hole->second - offset) return false;
  take_from(hole->first, at, size);
  return true;
}

void Holes::take_from(std::uint64_t hole, std::uint64_t at, std::uint64_t size) {
  const auto found = holes_.find(hole);
  const auto end = found->first + found->second;
  by_size_.erase({found->second, hole});
  holes_.erase(found);
  const auto put = [&](std::uint64_t begin, std::uint64_t past) {
    if (begin == past) return;
    holes_.emplace(begin, past - begin);
    by_size_.emplace(past - begin, begin);
  };
  put(hole, at);
  put(at + size, end);
}

}  // namespace emm::sim
