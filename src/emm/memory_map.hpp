#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "driver/types.hpp"

namespace emm {

/// All device memory that a manager holds, and what is where in it, at one moment. Sizes are bytes.
/// The words are PyTorch's memory snapshot's.
///
/// The blocks of a segment tile it, and so do its pieces; both are in the order of addresses. A
/// piece may be mapped again elsewhere, behind others: memory that lies there, a composite, is used
/// in the segments, by the blocks that name it.
struct MemoryMap {
  enum class State : std::uint8_t { active_allocated, active_awaiting_free, inactive };
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested_size =
        0;  ///< Of allocated ones; of a composite's, what of it is in this part.
    State state = State::inactive;
    std::optional<std::uint32_t> composite{};  ///< Index of the one that it is a part of.
  };
  /// What the device gave at once.
  struct Piece {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t handle = 0;  ///< The physical memory's; 0 of cuMemAlloc.
    std::uint64_t mapped = 1;  ///< How often, here included.
  };
  struct Segment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    StreamHandle stream{};
    std::vector<Piece> pieces{};
    std::vector<Block> blocks{};
  };
  /// Pieces mapped a second time, one behind the other.
  struct Mapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::vector<std::uint64_t> pieces;  ///< Their addresses in the segments.
  };
  /// Memory that is handed out in a mapping: the blocks that are its parts, in its order.
  struct Composite {
    struct Part {
      std::uint64_t address = 0;
      std::uint64_t size = 0;
    };
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t requested_size = 0;
    StreamHandle stream{};
    std::vector<Part> parts;
  };
  std::vector<Segment> segments;
  std::vector<Mapping> mappings;
  std::vector<Composite> composites;
};

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
