// What an arena could give to a request of any arena. The fit check adds this up.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

// Does not walk free blocks that are smaller than a span, so that many small blocks cost nothing.
// The upper end of their largest size class bounds them.
Supply Arena::supply() noexcept {
  make_all_remote_frees();
  const PlanInBlocks in_blocks(*this);
  // Kept blocks are in no ring. The walk below would miss them, and its sums must be upper bounds.
  blocks_.coalesce_kept();
  const bool can_stitch = !spans_.addresses().is_empty();
  const auto least = blocks_.granules(smallest_span());
  const auto smaller = blocks_.bytes(blocks_.largest_below(least));
  Supply supply{.allocated = counts_.allocated(),
                .has_deferred = !deferred_.is_empty(),
                .largest = smaller,
                .whole = spans_.inactive_bytes()};
  if (can_stitch) supply.before = supply.behind = smaller;
  blocks_.for_each_free(least, [&](std::uint32_t block) {
    const auto start = blocks_.address(block);
    const auto end = blocks_.end(block);
    supply.largest = std::max(supply.largest, end - start);
    if (!can_stitch) {
      spans_.for_each_within(start, end,
                             [&](std::uint32_t span) { supply.whole += spans_[span].size; });
      return;
    }
    for (auto at = start; at < end;) {
      const auto& span = spans_[spans_.at(at)];
      const bool has_its_start = start <= span.address;
      const bool has_its_end = span.end() <= end;
      if (has_its_start && has_its_end) {
        supply.whole += span.size;
      } else if (has_its_end) {
        supply.before = std::max(supply.before, span.end() - start);
      } else if (has_its_start) {
        supply.behind = std::max(supply.behind, end - span.address);
      }
      at = span.end();
    }
  });
  return supply;
}

}  // namespace emm::pool
