#include "order/touched.hpp"

#include <utility>

namespace emm::order {

Block* Touched::live(std::uint64_t begin, std::uint32_t id) noexcept {
  const auto found = blocks_.find(begin);
  if (found == blocks_.end() || !found->second.live || found->second.id != id) return nullptr;
  return &found->second;
}

Touched::Blocks::const_iterator Touched::first(std::uint64_t begin) const {
  auto at = blocks_.lower_bound(begin);
  if (at != blocks_.begin() && std::prev(at)->second.end > begin) --at;
  return at;
}

void Touched::overlapping(std::uint64_t begin, std::uint64_t end,
                          const std::function<void(const Block&)>& each) const {
  for (auto at = first(begin); at != blocks_.end() && at->first < end; ++at) each(at->second);
}

void Touched::carve(std::uint64_t begin, std::uint64_t end, bool also_live) {
  for (auto at = first(begin); at != blocks_.end() && at->first < end;) {
    if (at->second.live && !also_live) {
      ++at;
      continue;
    }
    const auto from = at->first;
    auto block = at->second;
    at = blocks_.erase(at);
    if (block.end > end) at = blocks_.emplace_hint(at, end, block);
    if (from < begin) {
      block.end = begin;
      blocks_.emplace(from, std::move(block));
    }
  }
}

void Touched::add(std::uint64_t begin, Block block) {
  blocks_.insert_or_assign(begin, std::move(block));
}

void Touched::sweep(const std::function<bool(const Block&)>& over) {
  std::erase_if(blocks_, [&](const auto& one) { return !one.second.live && over(one.second); });
}

}  // namespace emm::order
