#include "limit/shelf.hpp"

#include <algorithm>
#include <bit>

namespace emm::limit {
namespace {

constexpr std::uint64_t kListsPerItem = 10;

std::uint32_t first_piece(const Item& item, unsigned shift) { return item.first >> shift; }
std::uint32_t last_piece(const Item& item, unsigned shift) { return (item.last - 1) >> shift; }

}  // namespace

Shelf::Shelf(std::span<const Item> items, std::uint32_t sections) {
  auto shift = static_cast<unsigned>(std::bit_width(sections));
  std::uint64_t lists = items.size();
  levels_.push_back({.shift = shift, .pieces = std::vector<Piece>(1)});
  while (shift-- > 0) {
    for (const auto& item : items) lists += last_piece(item, shift) - first_piece(item, shift) + 1;
    if (lists > items.size() * kListsPerItem) break;
    levels_.push_back({.shift = shift, .pieces = std::vector<Piece>((sections >> shift) + 1)});
  }
}

void Shelf::clear() noexcept {
  for (auto& level : levels_) {
    for (auto& piece : level.pieces) piece.clear();
  }
}

const Shelf::Level& Shelf::level_for(const Item& item) const noexcept {
  const auto length = item.last - item.first;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    if ((std::uint64_t{1} << level->shift) >= length) return *level;
  }
  return levels_.front();
}

std::optional<std::uint64_t> Shelf::find(const Item& item, Fit fit, std::uint64_t limit) {
  const auto& level = level_for(item);
  const auto& left = level.pieces[first_piece(item, level.shift)];
  const auto& right = level.pieces[last_piece(item, level.shift)];
  auto at_left = left.begin();
  auto at_right = &left == &right ? right.end() : right.begin();

  std::uint64_t top = 0;  // of what has been passed
  std::optional<std::uint64_t> best;
  std::uint64_t best_gap = kTooMany;
  while (at_left != left.end() || at_right != right.end()) {
    const bool take_left =
        at_right == right.end() || (at_left != left.end() && at_left->begin <= at_right->begin);
    const auto& other = take_left ? *at_left++ : *at_right++;
    ++work_;
    if (other.last <= item.first || item.last <= other.first) continue;
    if (other.begin > top) {
      const auto offset = align_up(top, item.alignment);
      if (offset < other.begin && other.begin - offset >= item.size) {
        if (fit == Fit::first) {
          best = offset;
          break;
        }
        if (other.begin - top < best_gap) {
          best = offset;
          best_gap = other.begin - top;
        }
      }
    }
    top = std::max(top, other.end);
    if (!best && top >= limit) return std::nullopt;
  }
  if (!best) best = align_up(top, item.alignment);
  if (*best > limit || limit - *best < item.size) return std::nullopt;
  return best;
}

void Shelf::place(const Item& item, std::uint64_t offset) {
  const Placed placed{
      .begin = offset, .end = offset + item.size, .first = item.first, .last = item.last};
  for (auto& level : levels_) {
    for (auto i = first_piece(item, level.shift); i <= last_piece(item, level.shift); ++i) {
      auto& piece = level.pieces[i];
      const auto at = std::upper_bound(
          piece.begin(), piece.end(), offset,
          [](std::uint64_t value, const Placed& other) { return value < other.begin; });
      work_ += static_cast<std::uint64_t>(piece.end() - at) / 2 + 16;
      piece.insert(at, placed);
    }
  }
}

}  // namespace emm::limit
