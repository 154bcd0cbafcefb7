#include "stream_order/shadow_memory.hpp"

#include <algorithm>
#include <utility>

namespace emm::stream_order {

TracedAllocation* ShadowMemory::live(std::uint64_t begin, std::uint32_t id) noexcept {
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return nullptr;
  auto* allocation = found->second.allocation.get();
  return allocation->live && allocation->id == id ? allocation : nullptr;
}

ShadowMemory::Ranges::const_iterator ShadowMemory::first(std::uint64_t begin) const {
  auto at = ranges_.lower_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
  return at;
}

void ShadowMemory::overlapping(std::uint64_t begin, std::uint64_t end,
                               const std::function<void(const ShadowRange&)>& each) const {
  for (auto at = first(begin); at != ranges_.end() && at->first < end; ++at) each(at->second);
}

void ShadowMemory::erase(std::uint64_t begin, std::uint64_t end, const Which& which) {
  for (auto at = first(begin); at != ranges_.end() && at->first < end;) {
    if (!which(at->second)) {
      ++at;
      continue;
    }
    const auto from = at->first;
    auto range = at->second;
    at = ranges_.erase(at);
    if (range.end > end) at = ranges_.emplace_hint(at, end, range);
    if (from < begin) {
      range.end = begin;
      ranges_.emplace(from, std::move(range));
    }
  }
}

void ShadowMemory::set_apart(std::uint64_t begin, std::uint64_t end, const Which& which) {
  std::map<const TracedAllocation*, std::shared_ptr<TracedAllocation>> copies;
  std::vector<std::pair<std::uint64_t, ShadowRange>> parts;
  for (auto at = first(begin); at != ranges_.end() && at->first < end; ++at) {
    if (!which(at->second)) continue;
    auto& copy = copies[at->second.allocation.get()];
    if (copy == nullptr) copy = std::make_shared<TracedAllocation>(*at->second.allocation);
    parts.emplace_back(std::max(at->first, begin),
                       ShadowRange{.end = std::min(at->second.end, end), .allocation = copy});
  }
  if (parts.empty()) return;
  erase(begin, end, which);
  for (auto& [from, range] : parts) add(from, std::move(range));
}

void ShadowMemory::add(std::uint64_t begin, ShadowRange range) {
  ranges_.insert_or_assign(begin, std::move(range));
}

void ShadowMemory::sweep(const std::function<bool(const TracedAllocation&)>& over) {
  std::erase_if(ranges_, [&](const auto& one) {
    return !one.second.allocation->live && over(*one.second.allocation);
  });
}

}  // namespace emm::stream_order
