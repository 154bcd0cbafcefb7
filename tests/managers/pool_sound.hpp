#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"

namespace emm::test {

/// Translates an address in a mapping to the address in the segments where its memory is at home.
inline std::uint64_t at_home(const MemoryMap& map, const MemoryMap::AliasMapping& mapping,
                             std::uint64_t address) {
  auto rest = address - mapping.address;
  for (const auto piece : mapping.pieces) {
    for (const auto& segment : map.segments) {
      for (const auto& found : segment.pieces) {
        if (found.address != piece) continue;
        if (rest < found.size) return piece + rest;
        rest -= found.size;
      }
    }
  }
  ADD_FAILURE() << "no piece at " << address;
  return 0;
}

inline void expect_tiled(const MemoryMap::Segment& segment) {
  auto block_end = segment.address;
  for (const auto& block : segment.blocks) {
    ASSERT_EQ(block.address, block_end);
    ASSERT_GT(block.size, 0u);
    block_end += block.size;
  }
  EXPECT_EQ(block_end, segment.address + segment.size);
  auto piece_end = segment.address;
  for (const auto& piece : segment.pieces) {
    ASSERT_EQ(piece.address, piece_end);
    piece_end += piece.size;
  }
  EXPECT_EQ(piece_end, segment.address + segment.size);
}

/// Counts bytes and blocks of free memory in pieces that are not wholly free.
inline std::pair<std::uint64_t, std::uint64_t> inactive_split(const MemoryMap::Segment& segment) {
  std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
  for (const auto& block : segment.blocks) {
    if (block.state != MemoryMap::State::inactive) continue;
    auto rest = block.size;
    for (const auto& piece : segment.pieces) {
      if (piece.address >= block.address &&
          piece.address + piece.size <= block.address + block.size)
        rest -= piece.size;
    }
    sum.first += rest;
    sum.second += rest > 0 ? 1 : 0;
  }
  return sum;
}

inline void expect_laid_out(const MemoryMap& map, const MemoryMap::StitchedBlock& stitched_block,
                            std::uint32_t index) {
  const auto mapping = std::find_if(
      map.alias_mappings.begin(), map.alias_mappings.end(), [&](const auto& candidate) {
        return stitched_block.address >= candidate.address &&
               stitched_block.address + stitched_block.size <= candidate.address + candidate.size;
      });
  ASSERT_NE(mapping, map.alias_mappings.end());
  auto at = stitched_block.address;
  std::uint64_t requested = 0;
  for (const auto& part : stitched_block.parts) {
    EXPECT_EQ(at_home(map, *mapping, at), part.address);
    EXPECT_EQ(at_home(map, *mapping, at + part.size - 1), part.address + part.size - 1);
    at += part.size;
    for (const auto& segment : map.segments) {
      for (const auto& block : segment.blocks) {
        if (block.address != part.address) continue;
        EXPECT_EQ(block.size, part.size);
        EXPECT_EQ(block.state, MemoryMap::State::active_allocated);
        EXPECT_EQ(block.stitched_block, index);
        requested += block.requested_size;
      }
    }
  }
  EXPECT_EQ(at, stitched_block.address + stitched_block.size);
  EXPECT_EQ(requested, stitched_block.requested_size);
}

/// The map is whole, holds `live` (address to size) and nothing else, and adds up to the
/// statistics.
inline void expect_sound(const MemoryManager& manager,
                         const std::map<std::uint64_t, std::uint64_t>& live) {
  const auto map = *manager.memory_map();
  const auto statistics = manager.statistics();
  std::map<std::uint64_t, std::uint64_t> sizes, times;
  for (const auto& segment : map.segments) {
    for (const auto& piece : segment.pieces) sizes[piece.address] = piece.size;
  }
  for (const auto& mapping : map.alias_mappings) {
    auto at = mapping.address;
    for (const auto piece : mapping.pieces) {
      times[piece] += at != piece ? 1 : 0;
      at += sizes[piece];
    }
  }
  std::map<std::uint64_t, std::uint64_t> found;
  std::uint64_t reserved = 0, pieces = 0, requested = 0, allocated = 0, active = 0;
  std::pair<std::uint64_t, std::uint64_t> split{0, 0};
  for (const auto& segment : map.segments) {
    ASSERT_NO_FATAL_FAILURE(expect_tiled(segment));
    reserved += segment.size;
    pieces += segment.pieces.size();
    for (const auto& piece : segment.pieces) EXPECT_EQ(piece.mapped, 1 + times[piece.address]);
    for (const auto& block : segment.blocks) {
      requested += block.requested_size;
      if (block.state != MemoryMap::State::inactive) active += block.size;
      if (block.state != MemoryMap::State::active_allocated) continue;
      allocated += block.size;
      if (!block.stitched_block) found[block.address] = block.requested_size;
    }
    const auto [bytes, blocks] = inactive_split(segment);
    split.first += bytes;
    split.second += blocks;
  }
  for (std::uint32_t index = 0; index < map.stitched_blocks.size(); ++index) {
    const auto& stitched_block = map.stitched_blocks[index];
    ASSERT_NO_FATAL_FAILURE(expect_laid_out(map, stitched_block, index));
    found[stitched_block.address] = stitched_block.requested_size;
  }
  EXPECT_EQ(found, live);
  EXPECT_EQ(statistics.requested_bytes.current, requested);
  EXPECT_EQ(statistics.allocated_bytes.current, allocated);
  EXPECT_EQ(statistics.active_bytes.current, active);
  EXPECT_EQ(statistics.reserved_bytes.current, reserved);
  EXPECT_EQ(statistics.inactive_split_bytes.current, split.first);
  EXPECT_EQ(statistics.inactive_split.current, split.second);
  EXPECT_EQ(statistics.allocation.current, live.size());
  EXPECT_EQ(statistics.segment.current, map.segments.size());
  EXPECT_EQ(*statistics.num_device_alloc - *statistics.num_device_free, pieces);
}

}  // namespace emm::test
