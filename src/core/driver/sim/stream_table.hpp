#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/sim/stream.hpp"

namespace emm::sim {

/// The streams and events of all devices of a platform. No handle is used twice. One thread at a
/// time.
class StreamTable {
 public:
  /// The progress of one device's streams.
  struct Timeline {
    std::set<std::uint64_t> busy;  ///< Streams with pending work.
    std::uint64_t end_ns = 0;      ///< When the work done so far ended, on all streams.
    std::uint64_t blocking_end_ns =
        0;  ///< Likewise on the streams that order with the legacy stream.
  };

  explicit StreamTable(int devices) : timelines_(static_cast<std::size_t>(devices)) {}

  Timeline& timeline(int device) noexcept { return timelines_[static_cast<std::size_t>(device)]; }
  int devices() const noexcept { return static_cast<int>(timelines_.size()); }

  std::uint64_t create_stream(int device, ContextHandle context, StreamKind kind);
  /// False if there is no such stream.
  bool destroy_stream(StreamHandle handle);
  /// Finds a stream by its handle; null if there is none. The default streams are those of `device`
  /// and of this thread, and are made at first use.
  Stream* resolve(int device, ContextHandle context, StreamHandle handle);
  /// Finds a stream by its number, even a destroyed one with work left.
  Stream* find(std::uint64_t id);
  /// Notes that the pending work of a stream has changed. May end a destroyed stream.
  void note(Stream& stream);

  std::uint64_t create_event(int device);
  bool destroy_event(EventHandle handle) { return events_.erase(handle.value) != 0; }
  Event* event(EventHandle handle);

  /// Ends all streams and events of a device.
  void drop(int device);

  bool is_done(Point point) {
    const auto* stream = find(point.stream);
    return stream == nullptr || stream->done >= point.number;
  }

 private:
  std::vector<Timeline> timelines_;
  std::uint64_t last_stream_ = kPerThreadStream.value;
  std::uint64_t last_event_ = 0;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::unordered_map<std::uint64_t, Event> events_;
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> per_thread_;  // by device and thread
};

}  // namespace emm::sim
