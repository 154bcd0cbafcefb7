#include "order/touched.hpp"

#include <utility>

namespace emm::order {

Block* Touched::live(std::uint64_t begin, std::uint32_t id) noexcept {
  const auto found = pieces_.find(begin);
  if (found == pieces_.end()) return nullptr;
  auto* block = found->second.block.get();
  return block->live && block->id == id ? block : nullptr;
}

Touched::Pieces::const_iterator Touched::first(std::uint64_t begin) const {
  auto at = pieces_.lower_bound(begin);
  if (at != pieces_.begin() && std::prev(at)->second.end > begin) --at;
  return at;
}

void Touched::overlapping(std::uint64_t begin, std::uint64_t end,
                          const std::function<void(const Piece&)>& each) const {
  for (auto at = first(begin); at != pieces_.end() && at->first < end; ++at) each(at->second);
}

void Touched::carve(std::uint64_t begin, std::uint64_t end, const Which& which) {
  for (auto at = first(begin); at != pieces_.end() && at->first < end;) {
    if (!which(at->second)) {
      ++at;
      continue;
    }
    const auto from = at->first;
    auto piece = at->second;
    at = pieces_.erase(at);
    if (piece.end > end) at = pieces_.emplace_hint(at, end, piece);
    if (from < begin) {
      piece.end = begin;
      pieces_.emplace(from, std::move(piece));
    }
  }
}

void Touched::add(std::uint64_t begin, Piece piece) {
  pieces_.insert_or_assign(begin, std::move(piece));
}

void Touched::sweep(const std::function<bool(const Block&)>& over) {
  std::erase_if(
      pieces_, [&](const auto& one) { return !one.second.block->live && over(*one.second.block); });
}

}  // namespace emm::order
