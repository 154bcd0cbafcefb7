#pragma once

#include <cstdint>
#include <vector>

namespace emm::order {

/// A moment on a timeline: the work that was put there up to its `at`-th mark, none where `at` is
/// 0.
struct Point {
  std::uint32_t timeline = 0;
  std::uint64_t at = 0;
};

/// How much of each timeline is known to come before. Has an entry for each timeline of which
/// something is known.
class VectorClock {
 public:
  std::uint64_t of(std::uint32_t timeline) const noexcept;
  bool covers(Point point) const noexcept { return of(point.timeline) >= point.at; }
  void raise(Point point);
  void join(const VectorClock& other);
  void clear() noexcept { points_.clear(); }
  const std::vector<Point>& points() const noexcept { return points_; }

 private:
  std::vector<Point> points_;  ///< Ascending by timeline.
};

}  // namespace emm::order
