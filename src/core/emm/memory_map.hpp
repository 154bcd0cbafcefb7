#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/members.hpp"
#include "driver/types.hpp"

namespace emm {

/// All device memory that a manager holds at one moment, and what lies where in it. Sizes are
/// bytes. The terms are those of PyTorch's memory snapshot.
///
/// The blocks of a segment cover it without gaps, and so do its pieces; both are ordered by
/// address. Pieces may also be mapped, one behind the other, in an alias mapping. A stitched block
/// lies in an alias mapping. Its parts are blocks of the segments, and they name it.
struct MemoryMap {
  enum class State : std::uint8_t { active_allocated, active_awaiting_free, inactive };
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    /// The requested bytes of an allocated block. A part of a stitched block has its share.
    std::uint64_t requested_size = 0;
    State state = State::inactive;
    std::optional<std::uint32_t>
        stitched_block{};  ///< Index of the stitched block that this is a part of.
  };
  /// Memory that the device gave in one call.
  struct Piece {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t handle = 0;  ///< Names the physical memory; 0 if cuMemAlloc gave it.
    std::uint64_t mapped = 1;  ///< How often it is mapped, including its place in the segment.
  };
  struct Segment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    StreamHandle stream{};
    std::vector<Piece> pieces{};
    std::vector<Block> blocks{};
  };
  struct AliasMapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::vector<std::uint64_t> pieces;  ///< Their addresses in the segments.
  };
  /// An allocation in an alias mapping.
  struct StitchedBlock {
    struct Part {
      std::uint64_t address = 0;
      std::uint64_t size = 0;
    };
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested_size = 0;
    StreamHandle stream{};
    std::vector<Part> parts;  ///< Blocks of the segments, in the order of the alias mapping.
  };
  std::vector<Segment> segments;
  std::vector<AliasMapping> alias_mappings;
  std::vector<StitchedBlock> stitched_blocks;
};
EMM_MEMBERS_OF(MemoryMap::Piece, address, size, handle, mapped)
EMM_MEMBERS_OF(MemoryMap::AliasMapping, address, size, pieces)
EMM_MEMBERS_OF(MemoryMap::StitchedBlock::Part, address, size)

constexpr std::string_view name(MemoryMap::State state) noexcept {
  switch (state) {
    case MemoryMap::State::active_allocated:
      return "active_allocated";
    case MemoryMap::State::active_awaiting_free:
      return "active_awaiting_free";
    case MemoryMap::State::inactive:
      break;
  }
  return "inactive";
}

}  // namespace emm
