#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace emm::sim {

/// A point in the order of a stream: its work item `number`, counted from 1. 0 is before all work.
struct Point {
  std::uint64_t stream = 0;
  std::uint64_t number = 0;
  bool operator==(const Point&) const = default;
};

/// A vector clock: the work that must be done before something may begin, as the number of the last
/// such item of each stream. It is sparse, since most work waits for few streams.
class VectorClock {
 public:
  void add(Point point) {
    for (auto& known : points_) {
      if (known.stream != point.stream) continue;
      known.number = std::max(known.number, point.number);
      return;
    }
    points_.push_back(point);
  }
  void add(const VectorClock& other) {
    for (const auto& point : other.points_) add(point);
  }
  bool covers(Point point) const noexcept {
    return std::any_of(points_.begin(), points_.end(), [&](const Point& known) {
      return known.stream == point.stream && known.number >= point.number;
    });
  }
  template <class Predicate>
  void drop_if(Predicate predicate) {
    std::erase_if(points_, predicate);
  }
  std::span<const Point> points() const noexcept { return points_; }

 private:
  std::vector<Point> points_;  // at most one for each stream
};

}  // namespace emm::sim
