#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace emm::sim {

/// The `number`th piece of work that a stream was given, counted from 1; 0 is before all of them.
struct Point {
  std::uint64_t stream = 0;
  std::uint64_t number = 0;
  bool operator==(const Point&) const = default;
};

/// What has to be done before something may begin: of each stream, up to which piece.
class Frontier {
 public:
  void add(Point point) {
    for (auto& known : points_) {
      if (known.stream != point.stream) continue;
      known.number = std::max(known.number, point.number);
      return;
    }
    points_.push_back(point);
  }
  void add(const Frontier& other) {
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
  std::vector<Point> points_;  // at most one of a stream
};

}  // namespace emm::sim
