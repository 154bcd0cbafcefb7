#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "emm/memory_map.hpp"

namespace emm::test {

/// What is free of a segment, block by block: what waits for another stream can be waited for.
inline std::vector<std::pair<std::uint64_t, std::uint64_t>> holes_of(
    const MemoryMap::Segment& segment) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;
  for (const auto& block : segment.blocks) {
    if (block.state == MemoryMap::State::active_allocated) continue;
    if (!holes.empty() && holes.back().second == block.address) {
      holes.back().second += block.size;
    } else {
      holes.emplace_back(block.address, block.address + block.size);
    }
  }
  return holes;
}

/// The most that one request on `stream` can be served with, where the device or `max` has `room`
/// besides: all pages that are idle anywhere, and in memory that can be mapped as one, the end of
/// one hole before them and the start of another behind.
inline std::uint64_t most_to_be_had(const MemoryMap& map, StreamHandle stream, std::uint64_t room,
                                    bool maps, bool gives_back) {
  constexpr auto kPage = 2_MiB;
  struct Part {
    std::uint64_t bytes;
    std::uint64_t hole;
  };
  std::vector<Part> before{{0, 0}}, behind{{0, 1}};
  std::uint64_t contiguous = 0, idle = 0, idle_here = 0;
  for (const auto& segment : map.segments) {
    const bool here = segment.stream == stream;
    for (const auto& [start, end] : holes_of(segment)) {
      if (here) contiguous = std::max(contiguous, end - start);
      for (const auto& piece : segment.pieces) {
        const auto from = std::max(start, piece.address);
        const auto to = std::min(end, piece.address + piece.size);
        if (from >= to) continue;
        if (to - from == piece.size) {
          (here ? idle_here : idle) += piece.size;
        } else if (here && to == piece.address + piece.size) {
          before.push_back({to - from, start});
        } else if (here && from == piece.address) {
          behind.push_back({to - from, start});
        }
      }
    }
  }
  std::uint64_t ends = 0;
  for (const auto& first : before) {
    for (const auto& last : behind) {
      if (first.hole != last.hole) ends = std::max(ends, first.bytes + last.bytes);
    }
  }
  const auto pages = room + (gives_back ? idle : 0);
  if (!maps) return std::max(contiguous, pages + (gives_back ? idle_here : 0)) / 512 * 512;
  return std::max(contiguous, ends + idle_here + pages / kPage * kPage);
}

}  // namespace emm::test
