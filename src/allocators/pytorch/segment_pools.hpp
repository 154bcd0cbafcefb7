#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "allocators/pytorch/recording.hpp"

namespace emm::allocators::pytorch {

/// The pools of a recording's segments. Rows of PyTorch before 2026 do not name them: the state at
/// the end tells those of segments that live to see it, and of the others is known what they cannot
/// be. Segments that are parts of one range are a group, and of one pool.
class SegmentPools {
 public:
  using Pairs = std::set<std::pair<std::uint32_t, std::uint32_t>>;

  SegmentPools(const Recording& recording, const Settings& settings);

  PoolId pool(std::uint32_t segment) const noexcept { return groups_[group(segment)].pool; }
  bool is_small(std::uint32_t segment) const noexcept { return segments_[segment].small; }
  std::uint32_t group(std::uint32_t segment) const noexcept { return segments_[segment].group; }
  /// Segments whose pool is inferred.
  std::uint64_t inferred() const noexcept;
  /// Pairs of groups that are of two pools. False where nothing is new; else the unknown ones have
  /// other pools now: the default one where it can be, then those that are known, then new ones.
  bool set_apart(const Pairs& apart);

 private:
  struct Part {
    std::uint32_t group = 0;
    bool small = false;
  };
  struct Group {
    PoolId pool{};
    bool known = false;
    std::uint64_t batch = 0;  ///< Which of the releases ended the last of it; 0: none.
  };
  void infer();

  std::vector<Part> segments_;
  std::vector<Group> groups_;
  std::vector<PoolId> known_;
  Pairs apart_;
};

}  // namespace emm::allocators::pytorch
