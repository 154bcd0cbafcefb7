#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "trace/live_ids.hpp"
#include "trace/trace.hpp"

namespace emm::trace {

/// What a Trace needs of which only a window of events is in memory: its live ids, what a replay
/// relies on as far as the operations have come, and nothing of what has ended.
struct Trace::Window {
  /// One id that is live, or that ended no longer ago than the window is long: until then a replay
  /// may still ask for its name.
  struct Slot {
    std::uint64_t number = 0;
    std::uint64_t made_at = 0;  ///< The event, counted from 1.
    std::unique_ptr<std::string> text;
    std::uint32_t line = 0;
    SiteId site{};
    std::uint32_t process = 0;
    ContextId context{};
    Op op{};
    bool backing = false, failed = false;
    std::size_t place() const noexcept;  ///< Context and process.
  };
  /// What of the trace does not fit into a window.
  bool several_streams = false, needs_memory = false;

  std::size_t events;  ///< How many the window holds.
  std::uint64_t count = 0;
  bool second_pass = false;
  LiveIds ids;
  std::vector<Slot> slots;  ///< [0] stands for what is not live.
  std::uint32_t slots_used = 1;
  /// The slots that are free, in the order in which their ids ended, and at which event. Those
  /// that ended before the window are nobody's any more.
  std::deque<std::pair<std::uint64_t, std::uint32_t>> ended;
  enum class Found : std::uint8_t { live, unmade, over, again } found = Found::live;
  std::vector<Found> uses_found;
  std::optional<StreamId> only_stream;

  // As judge() has them:
  std::vector<std::uint64_t> resets, live_there, deferred;
  std::vector<ContextId> exported;
  std::uint64_t live = 0;
  bool any_reset = false;
  // As settle_times() has them:
  std::optional<std::uint64_t> start;
  std::uint64_t last_time = 0;

  explicit Window(std::size_t kept) : events(kept), slots(1) {}

  /// Begins again with nothing live.
  void rewind();
  std::uint32_t look_up(const Id& id, Found& how) const;
  std::uint32_t make(const Id& id);
  void end(const Id& id, std::uint32_t slot);
};

}  // namespace emm::trace
