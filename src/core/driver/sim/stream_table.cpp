#include "driver/sim/stream_table.hpp"

#include <atomic>

namespace emm::sim {
namespace {

// Default streams have separate numbers, so that the handles of other streams do not depend on
// them.
constexpr std::uint64_t kLegacyIds = std::uint64_t{1} << 62;
constexpr std::uint64_t kPerThreadIds = std::uint64_t{1} << 63;

std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const auto number = last.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

std::uint64_t StreamTable::create_stream(int device, ContextHandle context, StreamKind kind) {
  const auto id = ++last_stream_;
  auto& stream = streams_[id];
  stream.id = id;
  stream.device = device;
  stream.context = context;
  stream.blocking = kind == StreamKind::blocking;
  return id;
}

bool StreamTable::destroy_stream(StreamHandle handle) {
  if (handle.value >= kLegacyIds) return false;
  const auto found = streams_.find(handle.value);
  if (found == streams_.end() || found->second.destroyed) return false;
  found->second.destroyed = true;
  note(found->second);
  return true;
}

Stream* StreamTable::resolve(int device, ContextHandle context, StreamHandle handle) {
  const bool legacy = handle.value == 0 || handle == kLegacyStream;
  if (!legacy && handle != kPerThreadStream) {
    auto* stream = handle.value < kLegacyIds ? find(handle.value) : nullptr;
    return stream == nullptr || stream->destroyed ? nullptr : stream;
  }
  auto id = kLegacyIds + static_cast<std::uint64_t>(device);
  if (!legacy) {
    id = per_thread_.try_emplace({device, this_thread()}, kPerThreadIds + per_thread_.size())
             .first->second;
  }
  auto& stream = streams_[id];
  stream.id = id;
  stream.device = device;
  stream.context = context;
  stream.legacy = legacy;
  return &stream;
}

Stream* StreamTable::find(std::uint64_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

void StreamTable::note(Stream& stream) {
  auto& busy = timeline(stream.device).busy;
  if (!stream.pending.empty()) {
    busy.insert(stream.id);
    return;
  }
  busy.erase(stream.id);
  if (stream.destroyed && !stream.running) streams_.erase(stream.id);
}

std::uint64_t StreamTable::create_event(int device) {
  events_[++last_event_].device = device;
  return last_event_;
}

Event* StreamTable::event(EventHandle handle) {
  const auto found = events_.find(handle.value);
  return found == events_.end() ? nullptr : &found->second;
}

void StreamTable::drop(int device) {
  timeline(device) = {};
  std::erase_if(streams_, [&](const auto& entry) {
    return entry.second.device == device && entry.first < kLegacyIds;
  });
  // The default streams come back after the reset. Their numbers continue, so that no point from
  // before the reset seems to lie ahead.
  for (auto& [id, stream] : streams_) {
    if (stream.device != device) continue;
    stream.pending.clear();
    stream.done = stream.put;
    stream.known = {};
  }
  std::erase_if(events_, [&](const auto& entry) { return entry.second.device == device; });
}

}  // namespace emm::sim
