#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "order/vector_clock.hpp"

namespace emm::order {

/// The streams of a run as timelines, and the order of the work on them: by their own order, by
/// events, by the legacy default stream, and by the waits of the host.
///
/// Work that one host thread has waited for is done for all threads. One thread at a time.
class Streams {
 public:
  static constexpr std::uint32_t kUntagged = ~std::uint32_t{0};

  /// The timeline of a handle. A handle that created() does not know is a blocking stream.
  /// CU_STREAM_PER_THREAD is another one on each host thread.
  std::uint32_t find(std::uint32_t device, StreamHandle handle);
  void created(std::uint32_t device, StreamHandle handle, StreamKind kind);
  /// The driver may use the handle for another stream. Work that is on this one goes on; none is
  /// added.
  void destroyed(std::uint32_t device, StreamHandle handle);
  /// The name by which reports know the stream.
  void set_tag(std::uint32_t device, StreamHandle handle, std::uint32_t tag);
  std::uint32_t tag(std::uint32_t timeline) const noexcept { return timelines_[timeline].tag; }

  /// Sets the next mark on a timeline. A mark orders nothing: it stands for work that a program may
  /// or may not have put there. A timeline that is over gets no more work: its last mark stays.
  Point mark(std::uint32_t timeline) noexcept {
    auto& state = timelines_[timeline];
    if (!state.over) ++state.marks;
    return {timeline, state.marks};
  }
  /// Memory begins that work on the timeline may touch until end_of_memory(). Returns the first
  /// mark of that work.
  Point begin_of_memory(std::uint32_t timeline) noexcept {
    ++timelines_[timeline].memory;
    return mark(timeline);
  }
  void end_of_memory(std::uint32_t timeline) noexcept { --timelines_[timeline].memory; }
  /// Work is put on the stream: a blocking stream then waits for the legacy default stream, and
  /// that for all blocking ones.
  void enter(std::uint32_t timeline);
  /// The work that is on the stream now, and all that it waits for.
  VectorClock upto(std::uint32_t timeline) const;
  /// The work that is on any stream of the device now.
  VectorClock all(std::uint32_t device) const;
  /// Work that the stream gets from here on waits for `clock`.
  void after(std::uint32_t timeline, const VectorClock& clock);
  /// The host has waited for `clock`.
  void complete(const VectorClock& clock);

  bool done(Point point) const noexcept { return timelines_[point.timeline].done >= point.at; }
  /// Would work that the host puts on `timeline` now come after `point`?
  bool before_next(Point point, std::uint32_t timeline) const noexcept;
  /// How much of `of` is known to come before what `timeline` gets next, by edges alone.
  std::uint64_t known(std::uint32_t timeline, std::uint32_t of) const noexcept {
    return timelines_[timeline].before.of(of);
  }

 private:
  enum class Kind : std::uint8_t { legacy, blocking, non_blocking };
  struct Timeline {
    VectorClock before;  ///< What its next work waits for, on other timelines.
    std::uint64_t marks = 0;
    std::uint64_t done = 0;
    std::uint64_t memory = 0;  ///< Allocations that work on it may touch.
    bool over = false;         ///< Its stream was destroyed.
    std::uint32_t device = 0;
    std::uint32_t tag = kUntagged;
    Kind kind = Kind::blocking;
  };
  /// (device, handle, host thread); the thread is 0 of all but CU_STREAM_PER_THREAD.
  struct Key {
    std::uint32_t device;
    std::uint64_t handle;
    std::uint64_t thread;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(std::uint32_t device, StreamHandle handle) noexcept;
  std::uint32_t add(const Key& key, Kind kind);
  std::uint32_t legacy(std::uint32_t device);

  std::vector<Timeline> timelines_;
  std::map<Key, std::uint32_t> found_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> of_device_;  ///< Timelines that are not over.
  std::map<std::uint32_t, std::uint32_t> per_thread_tags_;         ///< By device.
};

}  // namespace emm::order
