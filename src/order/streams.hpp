#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "order/frontier.hpp"

namespace emm::order {

/// The streams of a run as timelines, and what is ordered before what on them: by their own order,
/// by events, by the legacy default stream, and by what the host has waited for.
///
/// What one thread has waited for is done for all: work that has ended has ended. One thread at a
/// time.
class Streams {
 public:
  static constexpr std::uint32_t kUntagged = ~std::uint32_t{0};

  /// The timeline of a handle; one that nobody announced is a blocking stream. CU_STREAM_PER_THREAD
  /// is another one on each host thread.
  std::uint32_t find(std::uint32_t device, StreamHandle handle);
  void created(std::uint32_t device, StreamHandle handle, StreamKind kind);
  /// The handle may come back as another stream; what was put on this one goes on, and no more
  /// comes.
  void destroyed(std::uint32_t device, StreamHandle handle);
  /// What a person calls the stream.
  void set_tag(std::uint32_t device, StreamHandle handle, std::uint32_t tag);
  std::uint32_t tag(std::uint32_t timeline) const noexcept { return lines_[timeline].tag; }

  /// The next mark on a timeline. A mark orders nothing: it stands for work that a program may or
  /// may not have put there.
  /// The stream of a timeline that is over has no more work than it had: its last mark.
  Point mark(std::uint32_t timeline) noexcept {
    auto& line = lines_[timeline];
    if (!line.over) ++line.marks;
    return {timeline, line.marks};
  }
  /// Memory that may be worked on there until its end; the first mark of that work.
  Point begin_of_memory(std::uint32_t timeline) noexcept {
    ++lines_[timeline].memory;
    return mark(timeline);
  }
  void end_of_memory(std::uint32_t timeline) noexcept { --lines_[timeline].memory; }
  /// Something is put on the stream in earnest: the legacy default stream orders with it.
  void enter(std::uint32_t timeline);
  /// All that is on the stream, and before it, up to here.
  Frontier upto(std::uint32_t timeline) const;
  /// All that is on any stream of the device.
  Frontier all(std::uint32_t device) const;
  /// What the stream gets from here on comes after `frontier`.
  void after(std::uint32_t timeline, const Frontier& frontier);
  /// The host has waited for it.
  void complete(const Frontier& frontier);

  bool done(Point point) const noexcept { return lines_[point.timeline].done >= point.at; }
  /// Would work that is put on `timeline` by the host now come after `point`?
  bool before_next(Point point, std::uint32_t timeline) const noexcept;
  /// How much of `of` is known to come before what `timeline` gets next, by edges alone.
  std::uint64_t known(std::uint32_t timeline, std::uint32_t of) const noexcept {
    return lines_[timeline].before.of(of);
  }

 private:
  enum class Kind : std::uint8_t { legacy, blocking, non_blocking };
  struct Line {
    Frontier before;  ///< Of other timelines.
    std::uint64_t marks = 0;
    std::uint64_t done = 0;
    std::uint64_t memory = 0;  ///< How much lives there.
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

  std::vector<Line> lines_;
  std::map<Key, std::uint32_t> found_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> of_device_;  ///< All but what is over.
  std::map<std::uint32_t, std::uint32_t> per_thread_tags_;         ///< By device.
};

}  // namespace emm::order
