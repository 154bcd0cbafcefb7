#include "replay/address_map.hpp"

#include <cstring>

#include "base/assert.hpp"

namespace emm::replay {
namespace {

/// Counts the sorted `values` up to `key`, without a branch that depends on them.
std::size_t count_not_above(const std::uint64_t* values, std::size_t count,
                            std::uint64_t key) noexcept {
  std::size_t base = 0;
  while (count > 0) {
    const auto half = (count + 1) / 2;
    base += values[base + half - 1] <= key ? half : 0;
    count -= half;
  }
  return base;
}

template <class T>
void move_up(T* values, std::size_t at, std::size_t count) noexcept {
  std::memmove(values + at + 1, values + at, (count - at) * sizeof(T));
}
template <class T>
void move_down(T* values, std::size_t at, std::size_t count) noexcept {
  std::memmove(values + at, values + at + 1, (count - at - 1) * sizeof(T));
}

}  // namespace

std::size_t AddressMap::leaf_of(std::uint64_t begin) const noexcept {
  return count_not_above(lows_.data(), lows_.size(), begin) - 1;  // lows_[0] is 0
}

std::optional<std::uint32_t> AddressMap::insert(std::uint64_t begin, std::uint64_t size,
                                                std::uint32_t number, std::uint64_t* other_begin) {
  EMM_ASSERT(size > 0);
  if (leaves_.empty()) {
    lows_.push_back(0);
    leaves_.push_back(std::make_unique<Leaf>());
  }
  // A range that would exceed 2^64 ends there.
  const auto last = begin + (size - 1) < begin ? ~std::uint64_t{0} : begin + (size - 1);
  const auto at_leaf = leaf_of(begin);
  const auto& leaf = *leaves_[at_leaf];
  const auto overlapped = [&](const Leaf& in, std::size_t which) {
    if (other_begin != nullptr) *other_begin = in.begin[which];
    return in.number[which];
  };
  const auto at = count_not_above(leaf.begin, leaf.count, begin);
  if (at > 0) {
    if (leaf.last[at - 1] >= begin) return overlapped(leaf, at - 1);
  } else if (at_leaf > 0) {
    const auto& before = *leaves_[at_leaf - 1];
    if (before.count > 0 && before.last[before.count - 1] >= begin)
      return overlapped(before, before.count - 1);
  }
  if (at < leaf.count) {
    if (leaf.begin[at] <= last) return overlapped(leaf, at);
  } else if (at_leaf + 1 < leaves_.size()) {
    const auto& after = *leaves_[at_leaf + 1];
    if (after.begin[0] <= last) return overlapped(after, 0);
  }
  put(at_leaf, at, begin, last, number);
  ++size_;
  return std::nullopt;
}

void AddressMap::put(std::size_t at_leaf, std::size_t at, std::uint64_t begin, std::uint64_t last,
                     std::uint32_t number) {
  if (leaves_[at_leaf]->count == kLeafSize) {
    auto& full = *leaves_[at_leaf];
    auto upper = std::make_unique<Leaf>();
    // At the upper end the full leaf stays nearly full, so that a map that grows upwards wastes no
    // room. Elsewhere both halves get room.
    const auto keep =
        at == kLeafSize && at_leaf + 1 == leaves_.size() ? kLeafSize - 1 : kLeafSize / 2;
    upper->count = kLeafSize - keep;
    std::memcpy(upper->begin, full.begin + keep, upper->count * sizeof full.begin[0]);
    std::memcpy(upper->last, full.last + keep, upper->count * sizeof full.last[0]);
    std::memcpy(upper->number, full.number + keep, upper->count * sizeof full.number[0]);
    full.count = keep;
    const auto next = static_cast<std::ptrdiff_t>(at_leaf) + 1;
    lows_.insert(lows_.begin() + next, upper->begin[0]);
    leaves_.insert(leaves_.begin() + next, std::move(upper));
    if (at > keep) {
      ++at_leaf;
      at -= keep;
    }
  }
  auto& leaf = *leaves_[at_leaf];
  move_up(leaf.begin, at, leaf.count);
  move_up(leaf.last, at, leaf.count);
  move_up(leaf.number, at, leaf.count);
  leaf.begin[at] = begin;
  leaf.last[at] = last;
  leaf.number[at] = number;
  ++leaf.count;
}

void AddressMap::erase(std::uint64_t begin) {
  const auto at_leaf = leaf_of(begin);
  const auto& leaf = *leaves_[at_leaf];
  const auto after = count_not_above(leaf.begin, leaf.count, begin);
  EMM_ASSERT(after > 0 && leaf.begin[after - 1] == begin);
  erase_at(at_leaf, after - 1);
}

bool AddressMap::erase(std::uint64_t begin, std::uint32_t number) {
  if (leaves_.empty()) return false;
  const auto at_leaf = leaf_of(begin);
  const auto& leaf = *leaves_[at_leaf];
  const auto after = count_not_above(leaf.begin, leaf.count, begin);
  if (after == 0 || leaf.begin[after - 1] != begin || leaf.number[after - 1] != number) {
    return false;
  }
  erase_at(at_leaf, after - 1);
  return true;
}

void AddressMap::erase_at(std::size_t at_leaf, std::size_t at) {
  auto& leaf = *leaves_[at_leaf];
  move_down(leaf.begin, at, leaf.count);
  move_down(leaf.last, at, leaf.count);
  move_down(leaf.number, at, leaf.count);
  --leaf.count;
  --size_;
  if (leaf.count == 0 && leaves_.size() > 1) {
    const auto gone = static_cast<std::ptrdiff_t>(at_leaf);
    leaves_.erase(leaves_.begin() + gone);
    lows_.erase(lows_.begin() + gone);
    lows_.front() = 0;
  }
}

std::optional<std::uint32_t> AddressMap::find(std::uint64_t begin) const noexcept {
  if (leaves_.empty()) return std::nullopt;
  const auto& leaf = *leaves_[leaf_of(begin)];
  const auto after = count_not_above(leaf.begin, leaf.count, begin);
  if (after == 0 || leaf.begin[after - 1] != begin) return std::nullopt;
  return leaf.number[after - 1];
}

void AddressMap::clear() noexcept {
  lows_.clear();
  leaves_.clear();
  size_ = 0;
}

}  // namespace emm::replay
