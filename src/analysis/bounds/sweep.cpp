#include "bounds/sweep.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "bounds/buffer.hpp"

namespace emm::bounds {
namespace {

constexpr int kGapsTried = 8;  // large enough gaps to try; an alignment may spoil some

// The free gaps below the top, which is the end of the highest live item.
class Gaps {
 public:
  std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t alignment) {
    auto gap = by_size_.lower_bound({size, 0});
    for (int tried = 0; gap != by_size_.end() && tried < kGapsTried; ++gap, ++tried) {
      const auto [bytes, begin] = *gap;
      const auto offset = align_up(begin, alignment);
      if (offset - begin > bytes || bytes - (offset - begin) < size) continue;
      erase(begin, bytes);
      add(begin, offset - begin);
      add(offset + size, bytes - (offset - begin) - size);
      return offset;
    }
    const auto offset = align_up(top_, alignment);
    if (offset == kTooMany || size > kTooMany - offset) return std::nullopt;
    add(top_, offset - top_);
    top_ = offset + size;
    return offset;
  }

  void give(std::uint64_t begin, std::uint64_t size) {
    auto above = by_begin_.lower_bound(begin);
    if (above != by_begin_.begin()) {
      const auto [lower, bytes] = *std::prev(above);
      if (lower + bytes == begin) {
        erase(lower, bytes);
        begin = lower;
        size += bytes;
      }
    }
    above = by_begin_.lower_bound(begin);
    if (above != by_begin_.end() && above->first == begin + size) {
      const auto [higher, bytes] = *above;
      erase(higher, bytes);
      size += bytes;
    }
    if (begin + size == top_) {
      top_ = begin;
    } else {
      add(begin, size);
    }
  }

 private:
  void add(std::uint64_t begin, std::uint64_t size) {
    if (size == 0) return;
    by_begin_.emplace(begin, size);
    by_size_.emplace(size, begin);
  }
  void erase(std::uint64_t begin, std::uint64_t size) {
    by_begin_.erase(begin);
    by_size_.erase({size, begin});
  }

  std::map<std::uint64_t, std::uint64_t> by_begin_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
  std::uint64_t top_ = 0;
};

}  // namespace

std::optional<std::vector<std::uint64_t>> place_in_time(const Instance& instance) {
  const auto& items = instance.items;
  std::vector<std::uint32_t> begins(items.size());
  std::iota(begins.begin(), begins.end(), std::uint32_t{0});
  auto ends = begins;
  std::stable_sort(begins.begin(), begins.end(), [&](auto a, auto b) {
    return items[a].first != items[b].first ? items[a].first < items[b].first
                                            : items[a].size > items[b].size;
  });
  std::stable_sort(ends.begin(), ends.end(),
                   [&](auto a, auto b) { return items[a].last < items[b].last; });

  Gaps gaps;
  std::vector<std::uint64_t> offsets(items.size());
  auto over = ends.begin();
  for (const auto i : begins) {
    for (; items[*over].last <= items[i].first; ++over)
      gaps.give(offsets[*over], items[*over].size);
    const auto offset = gaps.take(items[i].size, items[i].alignment);
    if (!offset) return std::nullopt;
    offsets[i] = *offset;
  }
  return offsets;
}

}  // namespace emm::bounds
