#include "bounds/bounds.hpp"

#include <algorithm>
#include <vector>

namespace emm::bounds {
namespace {

__extension__ using Sum = unsigned __int128;

std::uint64_t narrowed(Sum value) {
  return value > kTooMany ? kTooMany : static_cast<std::uint64_t>(value);
}

struct Edge {
  std::uint64_t time;
  std::uint64_t size;
  bool begins;
};

// The sum cannot overflow: 128 bits hold 2^64 saturated sizes.
std::uint64_t peak_of(std::vector<Edge>& edges) {
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.time != b.time ? a.time < b.time : a.begins < b.begins;
  });
  Sum live = 0;
  Sum peak = 0;
  for (const auto& edge : edges) {
    if (edge.begins) {
      live += edge.size;
      peak = std::max(peak, live);
    } else {
      live -= edge.size;
    }
  }
  return narrowed(peak);
}

void add_edges(std::vector<Edge>& edges, const Buffer& buffer, std::uint64_t size) {
  if (buffer.upper <= buffer.lower || size == 0) return;
  edges.push_back({.time = buffer.lower, .size = size, .begins = true});
  edges.push_back({.time = buffer.upper, .size = size, .begins = false});
}

}  // namespace

std::uint64_t requested_bound(std::span<const Buffer> buffers) { return aligned_bound(buffers, 1); }

std::uint64_t aligned_bound(std::span<const Buffer> buffers, std::uint64_t alignment) {
  std::vector<Edge> edges;
  edges.reserve(buffers.size() * 2);
  for (const auto& buffer : buffers) {
    const auto unit = alignment <= 1 ? alignment : std::max(alignment, buffer.alignment);
    add_edges(edges, buffer, align_up(buffer.size, unit));
  }
  return peak_of(edges);
}

std::uint64_t paged_bound(std::span<const Buffer> buffers, std::uint64_t page) {
  return align_up(requested_bound(buffers), page);
}

}  // namespace emm::bounds
