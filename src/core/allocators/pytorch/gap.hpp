#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "allocators/pytorch/recording.hpp"

namespace emm::allocators::pytorch {

/// Says why reserved memory is not live. For a given request, says why that memory could not serve
/// it.
enum class GapCause : std::uint8_t {
  rounding,           ///< Up to 512 bytes, or as roundup_power2_divisions says.
  unsplit_remainder,  ///< The rest of a block, too small to be a block of its own.
  waiting_for_event,  ///< Freed, and in use on another stream.
  private_pool,       ///< Free, in the pool of a graph or of a MemPool.
  other_stream,       ///< Free, on another stream.
  small_pool,         ///< Free, among blocks for requests of at most 1 MiB.
  large_pool,         ///< Free, among blocks for larger requests.
  too_small,          ///< Free in the request's own pool, in pieces that are smaller.
  kept_whole,         ///< Free and large enough, but max_split_size_mb forbids to split it.
};
inline constexpr std::size_t kGapCauses = 9;  // as many as GapCause has
/// "rounding", "waiting for an event"
std::string_view name(GapCause cause) noexcept;

struct GapPart {
  GapCause cause = GapCause::rounding;
  std::uint64_t bytes = 0, blocks = 0;
  /// The trace's event of the allocation that causes a rounding or an unsplit remainder.
  std::optional<std::uint64_t> event{};
};

struct Gap {
  std::uint64_t event = 0;
  std::uint64_t reserved = 0, live = 0;  ///< Bytes. Live ones count as requested.
  std::vector<GapPart> parts;            ///< They sum to reserved - live.
};

/// Measures the gap at the request of event `event`: after memory was released for it, before it
/// was served or refused. Returns nothing if the recording has no request there.
std::optional<Gap> gap_at(const Recording& recording, const Settings& settings,
                          std::uint64_t event);
/// Calls `found` with the gap of each request, in order. If pools have to be inferred, it walks the
/// recording several times; only the gaps of the last walk are right.
void each_gap(const Recording& recording, const Settings& settings,
              const std::function<void(const Gap&)>& found);

}  // namespace emm::allocators::pytorch
