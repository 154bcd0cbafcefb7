#include "bounds/validate.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "base/text_format.hpp"

namespace emm::bounds {
namespace {

bool takes_memory(const Buffer& buffer) { return buffer.size != 0 && buffer.lower < buffer.upper; }

std::optional<std::string> check_place(std::size_t index, const Buffer& buffer,
                                       std::uint64_t offset, std::uint64_t capacity) {
  if (buffer.alignment > 1 && offset % buffer.alignment != 0) {
    return text::format("buffer {} lies at {}: expected a multiple of its alignment, {}", index,
                        offset, buffer.alignment);
  }
  if (offset > capacity || buffer.size > capacity - offset) {
    return text::format("buffer {} lies at {} with {} bytes: expected its end within {} bytes",
                        index, offset, buffer.size, capacity);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_violation(std::span<const Buffer> buffers, const Layout& layout,
                                           std::uint64_t capacity) {
  if (layout.offsets.size() != buffers.size()) {
    return text::format("the layout has {} offsets: expected one for each of {} buffers",
                        layout.offsets.size(), buffers.size());
  }
  std::vector<std::tuple<std::uint64_t, bool, std::size_t>> edges;  // ends sort before begins
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!takes_memory(buffers[i])) continue;
    auto misplaced = check_place(i, buffers[i], layout.offsets[i], capacity);
    if (misplaced) return misplaced;
    edges.emplace_back(buffers[i].lower, true, i);
    edges.emplace_back(buffers[i].upper, false, i);
  }
  std::sort(edges.begin(), edges.end());

  // Live buffers by offset. They are disjoint, so a new buffer can only overlap its neighbours.
  std::map<std::uint64_t, std::size_t> live;
  for (const auto& [time, begins, index] : edges) {
    const auto offset = layout.offsets[index];
    if (!begins) {
      live.erase(offset);
      continue;
    }
    const auto above = live.lower_bound(offset);
    auto other = buffers.size();
    if (above != live.end() && above->first - offset < buffers[index].size) other = above->second;
    if (above != live.begin()) {
      const auto below = std::prev(above);
      if (offset - below->first < buffers[below->second].size) other = below->second;
    }
    if (other != buffers.size()) {
      return text::format(
          "buffers {} and {} are both live at {} and share bytes: they lie at {} and {}",
          std::min(other, index), std::max(other, index), time,
          layout.offsets[std::min(other, index)], layout.offsets[std::max(other, index)]);
    }
    live.emplace(offset, index);
  }
  return std::nullopt;
}

}  // namespace emm::bounds
