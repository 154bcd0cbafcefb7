#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "managers/pool/block_map.hpp"
#include "managers/pool/span_ends.hpp"
#include "managers/pool/span_list.hpp"

namespace emm::pool {

/// Which spans a new alias mapping will have, and what it needs from the driver.
struct StitchPlan {
  std::vector<std::uint32_t> spans{};
  std::uint64_t missing = 0;  ///< Bytes, in whole pages, that the arena must grow by.
  std::size_t insert_at = 0;  ///< Where the new spans come among `spans`.
  /// The new spans are at home in the mapping: they lie behind the free end of the arena's
  /// addresses, and only the spans behind them are mapped a second time.
  bool at_home = false;
};

struct StitchRequest {
  std::uint64_t wanted = 0;
  std::uint64_t tail = 0;         ///< Bytes that are free at the end of the arena's addresses.
  std::uint64_t end_address = 0;  ///< The end of the arena's addresses.
  bool prefer_at_home = false;    ///< Stitching is most of what requests cost.
  /// Memory has run out: one free run may provide both ends of the block.
  bool last_resort = false;
};

/// Chooses free runs for a stitched block. Only whole spans can lie between its first and its last
/// part. So the run with the most free bytes at the end of a span comes first, and the run with the
/// most at the start of a span comes last. Between them come as few runs of whole spans as are
/// needed, the largest first. Empty if stitching saves no memory.
std::optional<StitchPlan> plan_stitch(const BlockMap& blocks, const SpanList& spans,
                                      const SpanEnds& ends, const StitchRequest& request);

/// Drops spans from the front that the block does not need after all.
void drop_excess(std::vector<std::uint32_t>& chosen, std::uint64_t wanted, const SpanList& spans,
                 const SpanEnds& ends);

}  // namespace emm::pool
