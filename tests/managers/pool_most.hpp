#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "emm/memory_map.hpp"

namespace emm::test {

/// Joins the free blocks of a segment. A block that waits for another stream counts, since it can
/// be waited for.
inline std::vector<std::pair<std::uint64_t, std::uint64_t>> free_ranges_of(
    const MemoryMap::Segment& segment) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> free_ranges;
  for (const auto& block : segment.blocks) {
    if (block.state == MemoryMap::State::active_allocated) continue;
    if (!free_ranges.empty() && free_ranges.back().second == block.address) {
      free_ranges.back().second += block.size;
    } else {
      free_ranges.emplace_back(block.address, block.address + block.size);
    }
  }
  return free_ranges;
}

/// Computes the most that one request on `stream` can be served with where the device or `max` has
/// `room` besides. That is all pages that are idle anywhere and, where memory can be mapped as one,
/// the free end of a span before them and the free start of a span behind them.
inline std::uint64_t most_to_be_had(const MemoryMap& map, StreamHandle stream, std::uint64_t room,
                                    bool maps, bool gives_back) {
  constexpr auto kPage = 2_MiB;
  std::uint64_t contiguous = 0, idle = 0, idle_here = 0, before = 0, behind = 0;
  for (const auto& segment : map.segments) {
    const bool here = segment.stream == stream;
    for (const auto& [start, end] : free_ranges_of(segment)) {
      if (here) contiguous = std::max(contiguous, end - start);
      for (const auto& piece : segment.pieces) {
        const auto from = std::max(start, piece.address);
        const auto to = std::min(end, piece.address + piece.size);
        if (from >= to) continue;
        if (to - from == piece.size) {
          (here ? idle_here : idle) += piece.size;
        } else if (here && to == piece.address + piece.size) {
          before = std::max(before, to - from);
        } else if (here && from == piece.address) {
          behind = std::max(behind, to - from);
        }
      }
    }
  }
  const auto pages = room + (gives_back ? idle : 0);
  if (!maps) return std::max(contiguous, pages + (gives_back ? idle_here : 0)) / 512 * 512;
  return std::max(contiguous, before + idle_here + behind + pages / kPage * kPage);
}

}  // namespace emm::test
