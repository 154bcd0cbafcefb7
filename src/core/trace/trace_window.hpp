#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/live_ids.hpp"
#include "trace/trace.hpp"

namespace emm::trace {

/// The state of a Trace that keeps only a window of events in memory: the live ids and what a
/// replay relies on up to the last operation. Nothing is kept of what has ended.
struct Trace::Window {
  /// An id that is live, or that ended within the window, as a replay may still ask for its name.
  /// Two slots share a cache line.
  struct alignas(32) Slot {
    std::uint64_t number = 0;
    std::uint64_t made_at = 0;  ///< The event, counted from 1.
    std::uint32_t line = 0;
    SiteId site{};
    std::uint32_t process = 0;
    ContextId context{};
    Op op{};
    bool is_text : 1 = false;  ///< The id is in `texts`.
    bool backing : 1 = false, failed : 1 = false;
    std::size_t place() const noexcept;  ///< Context and process as one index.
  };
  static_assert(sizeof(Slot) == 32);
  /// A queue of slots whose ids have ended, oldest first.
  class EndedSlots {
   public:
    struct Ended {
      std::uint32_t event = 0;  ///< Its low bits: no slot waits for four billion events.
      std::uint32_t slot = 0;
    };
    bool empty() const noexcept { return begin_ == end_; }
    std::size_t size() const noexcept { return end_ - begin_; }
    const Ended& operator[](std::size_t at) const noexcept {
      return ring_[(begin_ + at) & (ring_.size() - 1)];
    }
    void pop() noexcept { ++begin_; }
    void put_back(const Ended& entry) noexcept { ring_[--begin_ & (ring_.size() - 1)] = entry; }
    [[gnu::always_inline]] void push(const Ended& entry) {
      if (size() == ring_.size()) grow();
      ring_[end_++ & (ring_.size() - 1)] = entry;
    }
    void clear() noexcept { begin_ = end_ = 0; }

   private:
    [[gnu::noinline]] void grow() {
      std::vector<Ended> ring(ring_.size() * 2);
      for (std::size_t i = 0; i < size(); ++i) ring[i] = (*this)[i];
      end_ = size();
      begin_ = 0;
      ring_ = std::move(ring);
    }
    std::vector<Ended> ring_ = std::vector<Ended>(1024);
    std::size_t begin_ = 0, end_ = 0;
  };

  /// Properties of the trace that a window cannot serve.
  bool several_streams = false, needs_memory = false;

  std::size_t events;  ///< The size of the window.
  Event last;          ///< The last event of the first pass.
  std::map<std::size_t, Trace::Place> places;
  std::uint64_t count = 0;
  bool second_pass = false;
  LiveIds ids;
  std::vector<Slot> slots;         ///< [0] stands for an id that is not live.
  std::vector<std::string> texts;  ///< By slot.
  bool is_full = false;            ///< The second pass needs more slots: the file has changed.
  /// While all_alike holds, everything made so far counts as live and is in this context of the
  /// manager's process. A free then need not look at its slot.
  std::optional<ContextId> only_context;
  bool all_alike = true;
  std::uint32_t slots_used = 1;
  std::size_t first_slots = 1;  ///< The number of slots that the first pass used.
  /// Released slots with the event of the release, oldest first. A slot may be reused once its
  /// event is no longer in the window.
  EndedSlots ended;
  enum class Found : std::uint8_t { live, unmade, over, again } found = Found::live;
  std::vector<Found> uses_found;
  std::optional<StreamId> only_stream;
  std::vector<std::uint64_t> last_mentions;  ///< By record; filled by the first pass.

  std::vector<Detail> passing;  ///< The details of the events in the window, a ring.
  std::uint32_t passing_next = 0;

  // judge() has these for a whole trace:
  std::vector<std::uint64_t> resets, live_there, deferred;
  std::vector<ContextId> exported;
  std::uint64_t live = 0, asked = 0;
  bool any_reset = false;
  // make_times_relative() has these for a whole trace:
  std::optional<std::uint64_t> start;
  std::uint64_t last_time = 0;

  explicit Window(std::size_t kept) : events(kept), slots(1) {}

  /// For how many events the slot of an ended id is kept. 0 in the first pass, which keeps no event
  /// that could name it.
  std::uint64_t lag() const noexcept { return second_pass ? events : 0; }
  /// The limit of the second pass.
  std::size_t slots_most() const noexcept {
    return (second_pass ? first_slots : slots.size()) + events + 2;
  }
  /// Starts the second pass with nothing live. From here on no slot moves, since another thread
  /// reads them.
  void begin_again();
  /// Notes that memory was made in `context`. `counts`: it is live and of the manager's process.
  void note_made(ContextId context, bool counts) {
    if (!only_context) only_context = context;
    if (context != *only_context || !counts) all_alike = false;
  }
  std::uint32_t look_up(const Id& id, Found& how) const;
  std::uint32_t make(const Id& id);
  /// Takes a slot that may be reused, or a new one. Returns 0, with is_full set, if the second pass
  /// has none left.
  [[gnu::always_inline]] std::uint32_t take_slot() {
    if (!ended.empty() && static_cast<std::uint32_t>(count) - ended[0].event > lag()) {
      // Frees by which a slot is fetched before it is reused.
      constexpr std::size_t kAhead = 8;
      if (ended.size() > kAhead) __builtin_prefetch(&slots[ended[kAhead].slot], 1);
      const auto slot = ended[0].slot;
      ended.pop();
      return slot;
    }
    if (slots_used == slots.size()) {
      if (second_pass) {
        is_full = true;
        return 0;
      }
      slots.emplace_back();
    }
    return slots_used++;
  }
  /// Gives back the slot that was taken last; the next take_slot() returns it.
  void release_last_slot(std::uint32_t slot) {
    if (slot == 0) return;
    if (slot + 1 == slots_used) {
      --slots_used;
    } else {
      ended.put_back({.event = static_cast<std::uint32_t>(count - lag() - 1), .slot = slot});
    }
  }
  void end(const Id& id, std::uint32_t slot);
  void note_ended(std::uint32_t slot) {
    ended.push({.event = static_cast<std::uint32_t>(count), .slot = slot});
  }
  /// Stores the detail. Returns the value for Event::detail, valid while the event is in the
  /// window.
  std::uint32_t pass(Detail&& detail);
};

}  // namespace emm::trace
