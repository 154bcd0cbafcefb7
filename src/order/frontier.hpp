#pragma once

#include <cstdint>
#include <vector>

namespace emm::order {

/// A moment on a timeline: what was put there up to its `at`-th mark. Nothing has at 0.
struct Point {
  std::uint32_t timeline = 0;
  std::uint64_t at = 0;
};

/// A vector clock: for each timeline how much of it is known to come before. Holds an entry for
/// each timeline that it knows anything of.
class Frontier {
 public:
  std::uint64_t of(std::uint32_t timeline) const noexcept;
  bool covers(Point point) const noexcept { return of(point.timeline) >= point.at; }
  void raise(Point point);
  void join(const Frontier& other);
  void clear() noexcept { points_.clear(); }
  const std::vector<Point>& points() const noexcept { return points_; }

 private:
  std::vector<Point> points_;  // by timeline
};

}  // namespace emm::order
