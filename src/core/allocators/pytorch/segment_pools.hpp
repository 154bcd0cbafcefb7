#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "allocators/pytorch/recording.hpp"

namespace emm::allocators::pytorch {

/// Assigns the segments of a recording to pools. Rows of PyTorch before 2026 do not name pools. The
/// final state names the pools of segments that still exist. For the others, only the pools to
/// which they cannot belong are known. The segments of one range form a group, which belongs to one
/// pool.
class SegmentPools {
 public:
  using Pairs = std::set<std::pair<std::uint32_t, std::uint32_t>>;

  SegmentPools(const Recording& recording, const Settings& settings);

  PoolId pool(std::uint32_t segment) const noexcept { return groups_[group(segment)].pool; }
  bool is_small(std::uint32_t segment) const noexcept { return segments_[segment].small; }
  std::uint32_t group(std::uint32_t segment) const noexcept { return segments_[segment].group; }
  /// Counts the segments whose pool is inferred.
  std::uint64_t inferred() const noexcept;
  /// Takes pairs of groups that belong to different pools, and infers the unknown pools anew: the
  /// default pool if possible, then a known one, then a new one. Returns false if no pair is new.
  bool set_apart(const Pairs& apart);

 private:
  struct GroupedSegment {
    std::uint32_t group = 0;
    bool small = false;
  };
  struct Group {
    PoolId pool{};
    bool known = false;
    std::uint64_t batch = 0;  ///< The run of releases that ended its last segment; 0: none.
  };
  void infer();

  std::vector<GroupedSegment> segments_;
  std::vector<Group> groups_;
  std::vector<PoolId> known_;
  Pairs apart_;
};

}  // namespace emm::allocators::pytorch
