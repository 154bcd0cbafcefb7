#include "stream_order/streams.hpp"

#include <algorithm>
#include <atomic>

namespace emm::stream_order {
namespace {

std::uint64_t this_thread() noexcept {
  static std::atomic<std::uint64_t> count{0};
  thread_local const std::uint64_t number = ++count;
  return number;
}

}  // namespace

Streams::Key Streams::key_of(std::uint32_t device, StreamHandle handle) noexcept {
  if (handle == kLegacyStream) handle = {};
  return {device, handle.value, handle == kPerThreadStream ? this_thread() : 0};
}

std::uint32_t Streams::add(const Key& key, Kind kind) {
  const auto number = static_cast<std::uint32_t>(timelines_.size());
  timelines_.push_back({.before = {}, .device = key.device, .kind = kind});
  if (key.handle == kPerThreadStream.value) {
    const auto tag = per_thread_tags_.find(key.device);
    if (tag != per_thread_tags_.end()) timelines_.back().tag = tag->second;
  }
  found_[key] = number;
  of_device_[key.device].push_back(number);
  return number;
}

std::uint32_t Streams::legacy(std::uint32_t device) { return find(device, {}); }

std::uint32_t Streams::find(std::uint32_t device, StreamHandle handle) {
  const auto key = key_of(device, handle);
  const auto found = found_.find(key);
  if (found != found_.end()) return found->second;
  return add(key, key.handle == 0 ? Kind::legacy : Kind::blocking);
}

void Streams::created(std::uint32_t device, StreamHandle handle, StreamKind kind) {
  add(key_of(device, handle), kind == StreamKind::blocking ? Kind::blocking : Kind::non_blocking);
}

void Streams::destroyed(std::uint32_t device, StreamHandle handle) {
  if (const auto found = found_.find(key_of(device, handle)); found != found_.end()) {
    auto& state = timelines_[found->second];
    if (state.memory > 0) ++state.marks;  // the work so far of its live allocations
    state.over = true;
    found_.erase(found);
  }
  // Drops destroyed streams whose work is done, since they order nothing. The legacy stream still
  // waits for the others.
  auto& numbers = of_device_[device];
  std::erase_if(numbers, [&](std::uint32_t number) {
    return timelines_[number].over && timelines_[number].done >= timelines_[number].marks;
  });
}

void Streams::set_tag(std::uint32_t device, StreamHandle handle, std::uint32_t tag) {
  if (handle == kPerThreadStream) per_thread_tags_[device] = tag;
  timelines_[find(device, handle)].tag = tag;
}

void Streams::enter(std::uint32_t timeline) {
  const auto kind = timelines_[timeline].kind;
  const auto device = timelines_[timeline].device;
  if (kind == Kind::blocking) {
    after(timeline, upto(legacy(device)));
  } else if (kind == Kind::legacy) {
    for (const auto number : of_device_[device]) {
      if (timelines_[number].kind == Kind::blocking) after(timeline, upto(number));
    }
  }
}

VectorClock Streams::upto(std::uint32_t timeline) const {
  VectorClock clock;
  const auto& state = timelines_[timeline];
  // A point that is done needs no order.
  for (const auto& point : state.before.points()) {
    if (!done(point)) clock.raise(point);
  }
  if (state.marks > state.done) clock.raise({timeline, state.marks});
  return clock;
}

VectorClock Streams::all(std::uint32_t device) const {
  VectorClock clock;
  const auto numbers = of_device_.find(device);
  if (numbers == of_device_.end()) return clock;
  for (const auto number : numbers->second) clock.join(upto(number));
  return clock;
}

void Streams::after(std::uint32_t timeline, const VectorClock& clock) {
  auto& state = timelines_[timeline];
  for (const auto& point : clock.points()) {
    if (point.timeline != timeline && !done(point)) state.before.raise(point);
  }
}

void Streams::complete(const VectorClock& clock) {
  for (const auto& point : clock.points()) {
    auto& done = timelines_[point.timeline].done;
    done = std::max(done, point.at);
  }
}

bool Streams::before_next(Point point, std::uint32_t timeline) const noexcept {
  if (done(point) || point.timeline == timeline) return true;
  const auto& state = timelines_[timeline];
  if (state.before.covers(point)) return true;
  if (state.kind == Kind::non_blocking) return false;
  // The legacy stream lies in between: it waits for the blocking streams, and they wait for it.
  const auto covers = [&](std::uint32_t other) {
    return other == point.timeline || timelines_[other].before.covers(point);
  };
  const auto& numbers = of_device_.at(state.device);
  const auto between = state.kind == Kind::legacy ? Kind::blocking : Kind::legacy;
  return std::any_of(numbers.begin(), numbers.end(), [&](std::uint32_t other) {
    return timelines_[other].kind == between && covers(other);
  });
}

}  // namespace emm::stream_order
