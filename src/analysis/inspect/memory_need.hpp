#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "format/json_writer.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// What one device's part of a trace needs, in bytes: lower bounds and, if laid_out, a layout,
/// which is an upper bound. A request that the recording refused counts at its moment. A layout
/// places all allocations offline, with every lifetime known beforehand.
struct MemoryNeed {
  // Bytes: cuMemAlloc's alignment and a page of an H200.
  static constexpr std::uint64_t kAlignment = 512, kPage = std::uint64_t{2} << 20;

  std::uint32_t device = 0;
  std::uint64_t allocs = 0;     ///< Requests that the recording served.
  std::uint64_t refused = 0;    ///< Requests that the recording refused.
  std::uint64_t peak_live = 0;  ///< No manager serves the trace with less.
  std::uint64_t aligned = 0;    ///< Likewise, with sizes rounded up to kAlignment.
  std::uint64_t paged = 0;      ///< Likewise, if the device hands out kPage at a time.
  /// What a manager needs that never waits: it gives memory freed on one stream to another only if
  /// the trace orders the two. A manager that waits, or makes the device wait, may need less.
  std::uint64_t no_wait = 0;
  bool laid_out = false;     ///< Layouts were searched; else the members below are 0.
  std::uint64_t lower = 0;   ///< Proven: no layout is lower.
  std::uint64_t greedy = 0;  ///< The best of several greedy orders.
  std::uint64_t upper = 0;   ///< The best layout found, which an independent check passed.
};

/// Returns the needs of each device that is asked for memory. The search for a layout of each ends
/// after `search_ns` of `clock`.
std::vector<MemoryNeed> needs(const trace::Lifetimes& lifetimes, const Clock& clock,
                              std::uint64_t search_ns,
                              trace::CountedRequests asked = trace::CountedRequests::all);

/// Returns only the lower bounds, in O(n log n). Layouts take longer the more is live at once.
std::vector<MemoryNeed> bounds(const trace::Lifetimes& lifetimes,
                               trace::CountedRequests asked = trace::CountedRequests::all);

std::string to_text(const std::vector<MemoryNeed>& needs);
void write_members(format::JsonWriter& json, const MemoryNeed& need);

}  // namespace emm::inspect
