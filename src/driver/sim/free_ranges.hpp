#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/sim/order.hpp"

namespace emm::sim {

/// What a stream-ordered pool has to give, by address: each range is free once what its stream was
/// given before the free is done. A range of stream 0 is anyone's. What a stream freed last is
/// `recent`, until it is settled. Ranges that touch are one where they are of one stream, and both
/// recent or both not. Of ranges of one size, the one that came first is given. Costs are
/// logarithmic. One thread at a time.
class FreeRanges {
 public:
  struct Range {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
    Point free_after{};  ///< Of its stream.
    bool recent = false;

    std::uint64_t end() const noexcept { return at + size; }
    bool usable_on(std::uint64_t stream) const noexcept {
      return free_after.stream == 0 || free_after.stream == stream;
    }
  };

  void add(Range range);
  /// Takes what lies there, whoever's it is; what is left of a range stays as it was.
  void remove(std::uint64_t begin, std::uint64_t end);
  /// The smallest recent range of a stream's that is large enough.
  std::optional<Range> recent_fit(std::uint64_t stream, std::uint64_t size) const;
  /// The smallest of anyone's, and of a stream's that are settled, that is large enough and does
  /// not end at `top`.
  std::optional<Range> fit(std::uint64_t stream, std::uint64_t size, std::uint64_t top) const;
  /// The same of all other streams', of the first 64 that fit each, where `allowed` says so.
  template <class Allowed>
  std::optional<Range> fit_of_others(std::uint64_t stream, std::uint64_t size,
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
  /// What of a stream's is recent, the last first; it is taken.
  std::vector<Range> take_recent(std::uint64_t stream);
  /// Takes a range that is first on its stream, and of whose point `is_over` says yes. What is
  /// recent on stream `but` is left out.
  template <class IsOver>
  std::optional<Range> take_over(std::uint64_t but, IsOver is_over) {
    for (const auto& [owner, ranges] : owners_) {
      if (owner.stream == 0 || (owner.recent && owner.stream == but)) continue;
      const auto range = range_at(ranges.by_point.begin()->second);
      if (!is_over(range.free_after)) continue;
      erase(range);
      return range;
    }
    return std::nullopt;
  }
  bool is_free(std::uint64_t begin, std::uint64_t size) const;  ///< Anyone's, all of it.
  std::optional<Range> ending_at(std::uint64_t end) const;
  std::optional<Range> beginning_at(std::uint64_t begin) const;

 private:
  struct Entry {
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
  Range range_at(std::uint64_t at) const;
  std::optional<Range> around(std::uint64_t at) const;
  void insert(const Range& range);
  void erase(const Range& range);

  std::map<std::uint64_t, Entry> ranges_;
  std::map<OwnerId, Owner> owners_;  // those that have any
  std::uint64_t turns_ = 0;
};

}  // namespace emm::sim
