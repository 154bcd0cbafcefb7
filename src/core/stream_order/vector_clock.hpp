#pragma once

#include <cstdint>
#include <vector>

namespace emm::stream_order {

/// A moment on a timeline: all work that was put there up to the `at`-th mark, or none if `at` is
/// 0.
struct Point {
  std::uint32_t timeline = 0;
  std::uint64_t at = 0;
};

/// For each timeline, the last mark that is known to come before. A timeline without a known mark
/// has no entry.
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

}  // namespace emm::stream_order
