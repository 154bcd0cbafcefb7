#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "stream_order/vector_clock.hpp"

namespace emm::stream_order {

/// The streams of a run as timelines, and the order of the work on them. Order comes from the
/// stream itself, from events, from the legacy default stream and from waits of the host.
///
/// Work that one host thread has waited for counts as done for all threads. One thread at a time.
class Streams {
 public:
  static constexpr std::uint32_t kUntagged = ~std::uint32_t{0};  // work without a stream of its own

  /// The timeline of a handle. A handle that created() never reported is taken for a blocking
  /// stream. CU_STREAM_PER_THREAD has a timeline for each host thread.
  std::uint32_t find(std::uint32_t device, StreamHandle handle);
  void created(std::uint32_t device, StreamHandle handle, StreamKind kind);
  /// The stream gets no more work, and its present work continues. The driver may use the handle
  /// for another stream.
  void destroyed(std::uint32_t device, StreamHandle handle);
  /// Sets the name of the stream in reports.
  void set_tag(std::uint32_t device, StreamHandle handle, std::uint32_t tag);
  std::uint32_t tag(std::uint32_t timeline) const noexcept { return timelines_[timeline].tag; }

  /// Sets the next mark on a timeline. A mark orders nothing: it stands for work that a program may
  /// have put there. The last mark of a destroyed stream stays, since the stream gets no more work.
  Point mark(std::uint32_t timeline) noexcept {
    auto& state = timelines_[timeline];
    if (!state.over) ++state.marks;
    return {timeline, state.marks};
  }
  /// An allocation begins, which work on the timeline may touch until end_of_memory(). Returns the
  /// first mark of that work.
  Point begin_of_memory(std::uint32_t timeline) noexcept {
    ++timelines_[timeline].memory;
    return mark(timeline);
  }
  void end_of_memory(std::uint32_t timeline) noexcept { --timelines_[timeline].memory; }
  /// Orders work that is put on the stream now. A blocking stream waits for the legacy default
  /// stream, and the legacy stream waits for all blocking ones.
  void enter(std::uint32_t timeline);
  /// Returns the work that is on the stream now and all work that it waits for.
  VectorClock upto(std::uint32_t timeline) const;
  /// Returns the work that is on any stream of the device now.
  VectorClock all(std::uint32_t device) const;
  /// Makes the later work of the stream wait for `clock`.
  void after(std::uint32_t timeline, const VectorClock& clock);
  /// Marks the work in `clock` as done, because the host has waited for it.
  void complete(const VectorClock& clock);

  bool done(Point point) const noexcept { return timelines_[point.timeline].done >= point.at; }
  /// Would work that the host puts on `timeline` now come after `point`?
  bool before_next(Point point, std::uint32_t timeline) const noexcept;
  /// The last mark of `of` that the next work on `timeline` waits for. It follows recorded edges
  /// only, not the rule of the legacy stream.
  std::uint64_t known(std::uint32_t timeline, std::uint32_t of) const noexcept {
    return timelines_[timeline].before.of(of);
  }

 private:
  enum class Kind : std::uint8_t { legacy, blocking, non_blocking };
  struct Timeline {
    VectorClock before;  ///< What its next work waits for on other timelines.
    std::uint64_t marks = 0;
    std::uint64_t done = 0;
    std::uint64_t memory = 0;  ///< Counts the live allocations that its work may touch.
    bool over = false;         ///< The stream was destroyed.
    std::uint32_t device = 0;
    std::uint32_t tag = kUntagged;
    Kind kind = Kind::blocking;
  };
  /// (device, handle, host thread). The thread is 0 except for CU_STREAM_PER_THREAD.
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
  /// Timelines that may still order work.
  std::map<std::uint32_t, std::vector<std::uint32_t>> of_device_;
  std::map<std::uint32_t, std::uint32_t> per_thread_tags_;  ///< By device.
};

}  // namespace emm::stream_order
