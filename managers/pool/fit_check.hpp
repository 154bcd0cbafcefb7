#pragma once

#include <algorithm>
#include <cstdint>

namespace emm::pool {

/// What an arena has for a request that a short search found no free block for. The numbers are
/// upper bounds in bytes.
struct Supply {
  std::uint64_t allocated = 0;  ///< Bytes in used blocks.
  /// Event-deferred frees are pending. The other numbers do not count their memory, and so are no
  /// upper bounds.
  bool has_deferred = false;
  std::uint64_t largest = 0;  ///< The largest free block.
  std::uint64_t whole = 0;    ///< Bytes of spans that are wholly free, or inactive.
  // These two count spans that are not wholly free. Both are 0 where nothing can be stitched.
  std::uint64_t before = 0;  ///< The most that is free at the end of one span.
  std::uint64_t behind = 0;  ///< The most that is free at the start of one span.
};

/// The fit check: rejects a request that no step of the pool could serve.
///
/// Memory comes from three places: a free block of the asking arena; a stitched block, which is the
/// end of a span, any number of whole spans, and the start of a span; or the driver. Whole spans of
/// other arenas count as the driver's, since they can be released to it. Used blocks cannot serve
/// the request, so it must also fit in `limit` beside the used blocks of all arenas.
struct FitCheck {
  std::uint64_t size = 0;
  std::uint64_t limit = 0;  ///< The smaller of `max` and the device's memory.
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
  /// `room` is what may still be reserved within `limit`.
  bool fails(std::uint64_t room) const noexcept {
    if (size > limit - std::min(limit, allocated)) return true;
    return !has_deferred && size > std::max(largest, room + whole + before_and_behind);
  }
};

}  // namespace emm::pool
