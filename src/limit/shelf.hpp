#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "limit/instance.hpp"

namespace emm::limit {

/// Items that have been placed, found by time and from the bottom up.
///
/// Time is cut into spans, at several levels of coarseness; each span lists what is placed in it
/// by offset. A gap for an item is looked for in the one or two spans about as long as the item,
/// so that little is read that is not live with it. The lists are in runs that know their largest
/// gap: where all of a run is live with the item, or none of it, and that gap is too small, it is
/// passed over as one. One thread at a time.
class Shelf {
 public:
  /// Levels are chosen so that `items`, which are to be placed, stand in about ten lists each.
  Shelf(std::span<const Item> items, std::uint32_t sections);

  enum class Fit : std::uint8_t {
    first,  ///< The lowest gap.
    best,   ///< The smallest gap below another item, the lowest of several; else above all.
  };
  /// The offset for `item` in that gap; nothing where its end would lie above `limit`.
  std::optional<std::uint64_t> find(const Item& item, Fit fit, std::uint64_t limit);
  /// REQUIRES: no overlap with what is placed; offset + size within 64 bits.
  void place(const Item& item, std::uint64_t offset);
  void clear() noexcept;

  /// A measure of what find() and place() have done so far, about a nanosecond a unit.
  std::uint64_t work() const noexcept { return work_; }

 private:
  struct Placed {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint32_t first;
    std::uint32_t last;
  };
  /// Neighbours in a list, by begin.
  struct Run {
    std::vector<Placed> placed;
    std::uint64_t end = 0;  // the highest
    std::uint64_t gap = 0;  // at least the largest between them, where all count
    std::size_t added = 0;  // since it was measured
    std::uint32_t first_least = 0, first_most = 0;
    std::uint32_t last_least = 0, last_most = 0;

    void measure() noexcept;
    void add(const Placed& one);
  };
  struct TimeSpan {
    std::vector<Run> runs;  // kept, with what they hold, for the next use
    std::size_t used = 0;   // of them; none of these is empty
  };
  /// The position of a reader in a list.
  struct Cursor {
    const TimeSpan* span;
    std::size_t run = 0, at = 0;

    bool done() const noexcept { return run == span->used; }
    const Run& whole() const noexcept { return span->runs[run]; }
    const Placed& next() const noexcept { return whole().placed[at]; }
    void pass() noexcept { ++run, at = 0; }
  };
  static Run& add_run(TimeSpan& span, std::size_t at);
  void insert(TimeSpan& span, const Placed& placed);
  struct Level {
    unsigned shift;  // a span is 2^shift sections long
    std::vector<TimeSpan> spans;
  };
  const Level& level_for(const Item& item) const noexcept;

  std::vector<Level> levels_;  // coarse to fine
  std::uint64_t work_ = 0;
};

}  // namespace emm::limit
