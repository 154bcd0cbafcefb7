#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "format/json_writer.hpp"
#include "inspect/lifetimes.hpp"

namespace emm::inspect {

/// What one device's part of a trace needs: two lower bounds, and a layout, which is an upper one.
/// Bytes. Of what was asked for in all, a request that the recording refused counts at its moment.
/// Layouts are those of offline placement, which knows every lifetime beforehand.
struct Need {
  static constexpr std::uint64_t kAlignment = 512, kPage = std::uint64_t{2} << 20;

  std::uint32_t device = 0;
  std::uint64_t allocs = 0;     ///< That were served;
  std::uint64_t refused = 0;    ///< and requests that the recording refused.
  std::uint64_t peak_live = 0;  ///< No manager serves it with less.
  std::uint64_t aligned = 0;    ///< As much, where sizes are rounded up to kAlignment;
  std::uint64_t paged = 0;      ///< and where the device hands out kPage at a time.
  /// What a manager needs that never waits: memory freed on one stream serves another only in an
  /// order that the trace has. Those that wait, or make the device wait, may need less.
  std::uint64_t no_wait = 0;
  bool laid_out = false;     ///< Were layouts looked for? Else what follows is 0.
  std::uint64_t lower = 0;   ///< Proven: no layout is lower.
  std::uint64_t greedy = 0;  ///< The best of several greedy orders.
  std::uint64_t upper = 0;   ///< The best layout found, by search where greedy is over 1 % away; an
                             ///< independent check passed it.
};

/// Of each device that is asked for memory. The search ends after `search_ns` of `clock`, for each.
std::vector<Need> needs(const Lifetimes& lifetimes, const Clock& clock, std::uint64_t search_ns,
                        Asked asked = Asked::all);

/// The lower bounds alone, in O(n log n): layouts take longer the more is live at once.
std::vector<Need> bounds(const Lifetimes& lifetimes, Asked asked = Asked::all);

std::string to_text(const std::vector<Need>& needs);
/// An array, as the value of a member.
void to_json(format::JsonWriter& json, const std::vector<Need>& needs);

}  // namespace emm::inspect
