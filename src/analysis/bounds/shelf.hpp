#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bounds/instance.hpp"

namespace emm::bounds {

/// The items placed so far, searchable by time and from the bottom up.
///
/// Time is cut into spans at several levels of coarseness. Each span lists the items placed in it
/// by offset. The search for a gap reads only the one or two spans that are about as long as the
/// item, so it reads few items that are not live together with it. A list consists of runs, and
/// each run knows its largest gap. The search skips a run as a whole if none of it is live with the
/// item, or if all of it is and the largest gap is too small. One thread at a time.
class Shelf {
 public:
  /// Chooses the levels so that each of `items`, which are to be placed, stands in about ten lists.
  Shelf(std::span<const Item> items, std::uint32_t sections);

  enum class Fit : std::uint8_t {
    first,  ///< The lowest gap.
    best,   ///< The smallest gap below another item, the lowest of equals. Without one, above all
            ///< items.
  };
  /// Finds the offset for `item` in the gap that `fit` names. Nothing if the item would end above
  /// `limit`.
  std::optional<std::uint64_t> find(const Item& item, Fit fit, std::uint64_t limit);
  /// REQUIRES: no overlap with a placed item; offset + size within 64 bits.
  void place(const Item& item, std::uint64_t offset);
  void clear() noexcept;

  /// The work of find() and place() so far, in units of about a nanosecond.
  std::uint64_t work() const noexcept { return work_; }

 private:
  struct Placed {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint32_t first;
    std::uint32_t last;
  };
  /// Neighbours in a list, sorted by begin.
  struct Run {
    std::vector<Placed> placed;
    std::uint64_t end = 0;  // highest end of an item
    std::uint64_t gap = 0;  // upper bound on the largest gap, if all items are live
    std::size_t added = 0;  // items added since measure()
    std::uint32_t first_least = 0, first_most = 0;
    std::uint32_t last_least = 0, last_most = 0;

    void measure() noexcept;
    void add(const Placed& one);
    /// Takes one into the bounds, and the gap between `end` and it.
    void widen(const Placed& one) noexcept;
  };
  struct TimeSpan {
    std::vector<Run> runs;  // never shrinks, so that runs keep their buffers
    std::size_t used = 0;   // how many runs are in use; each of these holds an item
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

}  // namespace emm::bounds
