#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocators/pytorch/heap.hpp"

namespace emm::allocators::pytorch {

class Recording;
struct OneStep;

/// What the allocator holds at one moment: its segments, and the blocks in them that are in use.
struct State {
  struct SegmentRange {
    std::uint64_t address = 0, size = 0, stream = 0;
    PoolId pool{};
    bool small = false;
    bool mapped = false;  ///< Part of an expandable segment.
  };
  struct Used {
    std::uint64_t address = 0, size = 0;
    std::uint64_t requested = 0;
    std::uint32_t allocation = 0;  ///< Its number in the recording.
    bool pending = false;          ///< Freed, but waiting for work on other streams.
  };
  std::vector<SegmentRange> segments;  ///< By address; none overlap.
  std::vector<Used> blocks;            ///< By address.
  std::uint64_t event = 0;             ///< The last event that tells of it.

  std::uint64_t reserved() const noexcept;
};

/// The state before the first row. Empty if there is none, or no segments tell where it lay.
State state_before(const Recording& recording, const OneStep& found);
/// The state after the last row.
State state_at_end(const Recording& recording, const OneStep& found);

/// The free bytes of one pool and stream. PyTorch gives `returnable` ones back before a request
/// fails: segments that are wholly free and, of expandable segments, the whole pages. The rest is
/// stuck in segments that are partly in use.
struct Inactive {
  PoolId pool{};
  bool small = false;
  std::uint64_t stream = 0;
  std::uint64_t returnable = 0, stuck = 0;
};
/// By pool, large before small, and by stream. Without pools that have nothing free.
std::vector<Inactive> inactive(const State& state, const Settings& settings);

/// The largest request that the model serves from this state on a device whose segments may take
/// `capacity` bytes, and on which stream. Empty if none is served.
struct Largest {
  std::uint64_t bytes = 0, stream = 0;
  /// A free block serves it. Otherwise a new segment does, which any stream may have.
  bool from_block = false;
};
std::optional<Largest> largest_request(const State& state, const Settings& settings,
                                       std::uint64_t capacity);
/// Does the model serve a request from this state?
bool serves(const State& state, const Settings& settings, std::uint64_t capacity,
            std::uint64_t size, std::uint64_t stream);

}  // namespace emm::allocators::pytorch
