#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/sim/vector_clock.hpp"

namespace emm::sim {

/// The free memory of a stream-ordered pool, by address. A range belongs to the stream that freed
/// it, and is free once the work before the free is done. A range of stream 0 is free for every
/// stream. The last frees of a stream are `recent` until it is given other work. Adjacent ranges
/// are coalesced if they belong to one stream and both are recent or neither is. Of ranges of one
/// size, the oldest is taken. Costs are logarithmic. One thread at a time.
class FreeRanges {
 public:
  struct FreeRange {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
    Point free_after{};  ///< The free, in the order of its stream.
    bool recent = false;

    std::uint64_t end() const noexcept { return at + size; }
    bool usable_on(std::uint64_t stream) const noexcept {
      return free_after.stream == 0 || free_after.stream == stream;
    }
  };

  void add(FreeRange range);
  /// Takes all free memory in [begin, end), of any stream. The rest of a cut range does not change.
  void remove(std::uint64_t begin, std::uint64_t end);
  /// The smallest recent range of the stream that is large enough.
  std::optional<FreeRange> recent_fit(std::uint64_t stream, std::uint64_t size) const;
  /// The smallest range that is large enough and does not end at `top`, among those of stream 0 and
  /// the stream's own that are not recent.
  std::optional<FreeRange> fit(std::uint64_t stream, std::uint64_t size, std::uint64_t top) const;
  /// A range of another stream that `allowed` accepts. Looks at the 64 smallest that fit of each
  /// stream, to bound the cost.
  template <class Allowed>
  std::optional<FreeRange> fit_of_others(std::uint64_t stream, std::uint64_t size,
                                         Allowed allowed) const {
    for (const auto& [owner, ranges] : owners_) {
      if (owner.stream == stream || owner.stream == 0) continue;
      int looked_at = 0;
      for (auto at = ranges.by_size.lower_bound({size, 0, 0});
           at != ranges.by_size.end() && looked_at < 64; ++at, ++looked_at) {
        const auto range = range_at(std::get<2>(*at));
        if (allowed(range.free_after)) return range;
      }
    }
    return std::nullopt;
  }
  /// Takes the recent ranges of a stream, the last freed first.
  std::vector<FreeRange> take_recent(std::uint64_t stream);
  /// Takes a range that is the first of its stream and whose free `is_over`. Leaves out recent
  /// ranges of stream `but`.
  template <class IsOver>
  std::optional<FreeRange> take_finished(std::uint64_t but, IsOver is_over) {
    for (const auto& [owner, ranges] : owners_) {
      if (owner.stream == 0 || (owner.recent && owner.stream == but)) continue;
      const auto range = range_at(ranges.by_point.begin()->second);
      if (!is_over(range.free_after)) continue;
      erase(range);
      return range;
    }
    return std::nullopt;
  }
  /// Answers whether all of [begin, begin + size) is free for every stream.
  bool is_free(std::uint64_t begin, std::uint64_t size) const;
  std::optional<FreeRange> ending_at(std::uint64_t end) const;
  std::optional<FreeRange> beginning_at(std::uint64_t begin) const;

 private:
  struct ListedRange {
    std::uint64_t size = 0;
    Point free_after{};
    bool recent = false;
    std::uint64_t turn = 0;
  };
  struct OwnerId {
    std::uint64_t stream = 0;
    bool recent = false;
    auto operator<=>(const OwnerId&) const = default;
  };
  using BySize = std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>;
  struct Owner {
    BySize by_size;                                              // size, turn, address
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_point;  // number, address
  };
  FreeRange range_at(std::uint64_t at) const;
  std::optional<FreeRange> around(std::uint64_t at) const;
  void insert(const FreeRange& range);
  void erase(const FreeRange& range);

  std::map<std::uint64_t, ListedRange> ranges_;
  std::map<OwnerId, Owner> owners_;  // only owners with ranges
  std::uint64_t turns_ = 0;
};

}  // namespace emm::sim
