#include "order/streams.hpp"

#include <algorithm>
#include <atomic>

namespace emm::order {
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
  const auto line = static_cast<std::uint32_t>(lines_.size());
  lines_.push_back({.before = {}, .device = key.device, .kind = kind});
  if (key.handle == kPerThreadStream.value) {
    const auto tag = per_thread_tags_.find(key.device);
    if (tag != per_thread_tags_.end()) lines_.back().tag = tag->second;
  }
  found_[key] = line;
  of_device_[key.device].push_back(line);
  return line;
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
    auto& line = lines_[found->second];
    if (line.memory > 0) ++line.marks;  // what works on it until here
    line.over = true;
    found_.erase(found);
  }
  // What is over orders nothing any more; what runs on is still waited for by the legacy stream.
  auto& lines = of_device_[device];
  std::erase_if(lines, [&](std::uint32_t line) {
    return lines_[line].over && lines_[line].done >= lines_[line].marks;
  });
}

void Streams::set_tag(std::uint32_t device, StreamHandle handle, std::uint32_t tag) {
  if (handle == kPerThreadStream) per_thread_tags_[device] = tag;
  lines_[find(device, handle)].tag = tag;
}

void Streams::enter(std::uint32_t timeline) {
  const auto kind = lines_[timeline].kind;
  const auto device = lines_[timeline].device;
  if (kind == Kind::blocking) {
    after(timeline, upto(legacy(device)));
  } else if (kind == Kind::legacy) {
    for (const auto line : of_device_[device]) {
      if (lines_[line].kind == Kind::blocking) after(timeline, upto(line));
    }
  }
}

Frontier Streams::upto(std::uint32_t timeline) const {
  Frontier frontier;
  const auto& line = lines_[timeline];
  // What is done needs no order.
  for (const auto& point : line.before.points()) {
    if (!done(point)) frontier.raise(point);
  }
  if (line.marks > line.done) frontier.raise({timeline, line.marks});
  return frontier;
}

Frontier Streams::all(std::uint32_t device) const {
  Frontier frontier;
  const auto lines = of_device_.find(device);
  if (lines == of_device_.end()) return frontier;
  for (const auto line : lines->second) frontier.join(upto(line));
  return frontier;
}

void Streams::after(std::uint32_t timeline, const Frontier& frontier) {
  auto& line = lines_[timeline];
  for (const auto& point : frontier.points()) {
    if (point.timeline != timeline && !done(point)) line.before.raise(point);
  }
}

void Streams::complete(const Frontier& frontier) {
  for (const auto& point : frontier.points()) {
    auto& done = lines_[point.timeline].done;
    done = std::max(done, point.at);
  }
}

bool Streams::before_next(Point point, std::uint32_t timeline) const noexcept {
  if (done(point) || point.timeline == timeline) return true;
  const auto& line = lines_[timeline];
  if (line.before.covers(point)) return true;
  if (line.kind == Kind::non_blocking) return false;
  // The legacy stream stands between: it waits for the blocking ones, which wait for it.
  const auto covers = [&](std::uint32_t other) {
    return other == point.timeline || lines_[other].before.covers(point);
  };
  const auto& lines = of_device_.at(line.device);
  const auto between = line.kind == Kind::legacy ? Kind::blocking : Kind::legacy;
  return std::any_of(lines.begin(), lines.end(), [&](std::uint32_t other) {
    return lines_[other].kind == between && covers(other);
  });
}

}  // namespace emm::order
