#include "stream_order/vector_clock.hpp"

#include <algorithm>

namespace emm::stream_order {
namespace {

constexpr auto kByTimeline = [](const Point& point, std::uint32_t timeline) {
  return point.timeline < timeline;
};

}  // namespace

std::uint64_t VectorClock::of(std::uint32_t timeline) const noexcept {
  const auto found = std::lower_bound(points_.begin(), points_.end(), timeline, kByTimeline);
  return found != points_.end() && found->timeline == timeline ? found->at : 0;
}

void VectorClock::raise(Point point) {
  const auto found = std::lower_bound(points_.begin(), points_.end(), point.timeline, kByTimeline);
  if (found != points_.end() && found->timeline == point.timeline) {
    found->at = std::max(found->at, point.at);
  } else {
    points_.insert(found, point);
  }
}

void VectorClock::join(const VectorClock& other) {
  for (const auto& point : other.points_) raise(point);
}

}  // namespace emm::stream_order
