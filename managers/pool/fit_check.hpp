#pragma once

#include <algorithm>
#include <cstdint>

namespace emm::pool {

/// What an arena has for a request that no short look found a free block for. Upper bounds in
/// bytes.
struct Supply {
  std::uint64_t allocated = 0;  ///< In blocks that are handed out.
  /// Frees wait for events of other streams: what they free is not in the other numbers, which are
  /// then no bounds.
  bool has_deferred = false;
  std::uint64_t largest = 0;  ///< The largest free block.
  std::uint64_t whole = 0;    ///< Bytes of spans that are wholly free, or inactive.
  // These two count spans that are not wholly free. Both are 0 where nothing can be stitched.
  std::uint64_t before = 0;  ///< The most that is free at the end of one span.
  std::uint64_t behind = 0;  ///< The most that is free at the start of one span.
};

/// The rule of early reject: is there no way to serve a request?
///
/// Memory comes from three places: a free block of the asking arena; a stitched block, which is the
/// end of a span, any number of whole spans, and the start of a span; or the driver. Whole spans of
/// other arenas count as the driver's, since they can be released to it. Nothing that is handed out
/// can serve the request, so what all arenas have handed out bounds it as well.
struct FitCheck {
  std::uint64_t size = 0;
  std::uint64_t limit = 0;  ///< `max` or what the device has, the smaller.
  std::uint64_t allocated = 0;
  std::uint64_t whole = 0;
  std::uint64_t before_and_behind = 0;
  std::uint64_t largest = 0;
  bool has_deferred = false;

  void add(const Supply& supply, bool is_asker) noexcept {
    allocated += supply.allocated;
    whole += supply.whole;
    has_deferred = has_deferred || supply.has_deferred;
    if (!is_asker) return;
    largest = supply.largest;
    before_and_behind = supply.before + supply.behind;
  }
  /// `room`: what may still be reserved within `limit`.
  bool fails(std::uint64_t room) const noexcept {
    if (size > limit - std::min(limit, allocated)) return true;
    return !has_deferred && size > std::max(largest, room + whole + before_and_behind);
  }
};

}  // namespace emm::pool
