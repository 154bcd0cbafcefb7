#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "format/json_writer.hpp"
#include "inspect/lives.hpp"

namespace emm::inspect {

/// What one device's part of a trace needs of any manager: proven lower bounds, and a layout, which is an upper one.
/// Bytes. Layouts are those of offline placement, which knows every lifetime beforehand.
struct Need {
  static constexpr std::uint64_t kAlignment = 512, kPage = std::uint64_t{2} << 20;

  std::uint32_t device = 0;
  std::uint64_t allocs = 0;
  std::uint64_t requested = 0;   ///< Peak live: the least for any manager.
  std::uint64_t aligned = 0;     ///< Where sizes are rounded up to kAlignment.
  std::uint64_t paged = 0;       ///< Where the device hands out kPage at a time.
  std::uint64_t per_stream = 0;  ///< Where memory freed on one stream serves another only in an order that the trace has.
  bool laid_out = false;         ///< Were layouts looked for? Else what follows is 0.
  std::uint64_t lower = 0;       ///< Proven: no layout is lower.
  std::uint64_t greedy = 0;      ///< The best of several greedy orders.
  std::uint64_t upper = 0;       ///< The best layout found, by search where greedy is over 1 % away; an independent check passed it.
};

/// Of each device that has memory. The search ends after `search_ns` of `clock`, for each.
std::vector<Need> needs(const Lives& lives, const Clock& clock, std::uint64_t search_ns);

/// The lower bounds alone, in O(n log n): layouts take longer the more is live at once.
std::vector<Need> bounds(const Lives& lives);

std::string to_text(const std::vector<Need>& needs);
/// An array, as the value of a member.
void to_json(format::JsonWriter& json, const std::vector<Need>& needs);

}  // namespace emm::inspect
