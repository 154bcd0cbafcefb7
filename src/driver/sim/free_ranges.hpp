#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "driver/sim/order.hpp"

namespace emm::sim {

/// What a stream-ordered pool has to give, by address: each range is free once what its stream was
/// given before the free is done. A range of stream 0 is anyone's. Ranges that touch are one where
/// they are of one
/// stream. Costs are logarithmic. One thread at a time.
class FreeRanges {
 public:
  struct Range {
    std::uint64_t at = 0;
    std::uint64_t size = 0;
    Point free_after{};  ///< Of its stream.
  };

  void add(Range range);
  /// Takes `size` bytes from the start of a range; what is left stays as it was.
  void take(const Range& range, std::uint64_t size);
  /// The smallest range of a stream's, or anyone's, that is large enough, the highest of those.
  std::optional<Range> fit(std::uint64_t stream, std::uint64_t size) const;
  /// The same of all other streams', of the first 64 that fit each, where `allowed` says so.
  template <class Allowed>
  std::optional<Range> fit_of_others(std::uint64_t stream, std::uint64_t size,
                                     Allowed allowed) const {
    for (const auto& [owner, ranges] : owners_) {
      if (owner == stream || owner == 0) continue;
      int looked_at = 0;
      for (auto at = ranges.by_size.lower_bound({size, 0});
           at != ranges.by_size.end() && looked_at < 64; ++at, ++looked_at) {
        const auto range = range_at(at->second);
        if (allowed(range.free_after)) return range;
      }
    }
    return std::nullopt;
  }
  /// The range of a stream that is free first; nothing where it has none.
  std::optional<Range> first_of_any_stream(std::uint64_t after_stream) const;
  bool is_free(std::uint64_t begin, std::uint64_t size) const;  ///< Anyone's, all of it.
  /// Takes a part of a range that is anyone's. REQUIRES: is_free(begin, size).
  void cut(std::uint64_t begin, std::uint64_t size);
  /// The range that ends there.
  std::optional<Range> ending_at(std::uint64_t end) const;

 private:
  struct Entry {
    std::uint64_t size = 0;
    Point free_after{};
  };
  struct Owner {
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size;   // size, address
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_point;  // number, address
  };
  Range range_at(std::uint64_t at) const;
  std::optional<Range> around(std::uint64_t at) const;
  void insert(const Range& range);
  void erase(const Range& range);

  std::map<std::uint64_t, Entry> ranges_;
  std::map<std::uint64_t, Owner> owners_;  // those that have any
};

}  // namespace emm::sim
