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

/// What a Trace needs of which only a window of events is in memory: its live ids, what a replay
/// relies on as far as the operations have come, and nothing of what has ended.
struct Trace::Window {
  /// One id that is live, or that ended no longer ago than the window is long: until then a replay
  /// may still ask for its name. Two lie in a cache line.
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
    std::size_t place() const noexcept;  ///< Context and process.
  };
  static_assert(sizeof(Slot) == 32);
  /// A queue of slots.
  class EndedSlots {
   public:
    struct Ended {
      std::uint32_t event = 0;  ///< Its low bits: nobody waits for four billion.
      std::uint32_t slot = 0;
    };
    bool empty() const noexcept { return begin_ == end_; }
    std::size_t size() const noexcept { return end_ - begin_; }
    const Ended& operator[](std::size_t at) const noexcept {
      return ring_[(begin_ + at) & (ring_.size() - 1)];
    }
    void pop() noexcept { ++begin_; }
    void put_back(const Ended& ended) noexcept { ring_[--begin_ & (ring_.size() - 1)] = ended; }
    [[gnu::always_inline]] void push(const Ended& ended) {
      if (size() == ring_.size()) grow();
      ring_[end_++ & (ring_.size() - 1)] = ended;
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

  /// What of the trace does not fit into a window.
  bool several_streams = false, needs_memory = false;

  std::size_t events;  ///< How many the window holds.
  Event last;          ///< Of the first reading.
  std::map<std::size_t, Trace::Place> places;
  std::uint64_t count = 0;
  bool second_pass = false;
  LiveIds ids;
  std::vector<Slot> slots;         ///< [0] stands for what is not live.
  std::vector<std::string> texts;  ///< By slot.
  bool is_full = false;            ///< The second reading needs more: it is of another file.
  /// Everything made so far counts as live and is in this context of the manager's process: then
  /// nobody has to look at the slot of what ends.
  std::optional<ContextId> only_context;
  bool all_alike = true;
  std::uint32_t slots_used = 1;
  std::size_t first_slots = 1;  ///< As many as the first reading took.
  /// The slots that are free, in the order in which their ids ended, and at which event. Those
  /// that ended before the window are nobody's any more.
  EndedSlots ended;
  enum class Found : std::uint8_t { live, unmade, over, again } found = Found::live;
  std::vector<Found> uses_found;
  std::optional<StreamId> only_stream;
  std::vector<std::uint64_t> last_mentions;  ///< By record, of the first reading.

  std::vector<Detail> passing;  ///< A ring.
  std::uint32_t passing_next = 0;

  // As judge() has them:
  std::vector<std::uint64_t> resets, live_there, deferred;
  std::vector<ContextId> exported;
  std::uint64_t live = 0;
  bool any_reset = false;
  // As make_times_relative() has them:
  std::optional<std::uint64_t> start;
  std::uint64_t last_time = 0;

  explicit Window(std::size_t kept) : events(kept), slots(1) {}

  /// For how many events a slot is kept for what ended. The first reading keeps no event that
  /// names one.
  std::uint64_t lag() const noexcept { return second_pass ? events : 0; }
  /// The second reading takes no more.
  std::size_t slots_most() const noexcept {
    return (second_pass ? first_slots : slots.size()) + events + 2;
  }
  /// Begins again with nothing live. From here on no slot moves: another thread reads them.
  void begin_again();
  /// Something was made there, which `counts` if it is live and of the manager's process.
  void note_made(ContextId context, bool counts) {
    if (!only_context) only_context = context;
    if (context != *only_context || !counts) all_alike = false;
  }
  std::uint32_t look_up(const Id& id, Found& how) const;
  std::uint32_t make(const Id& id);
  /// A slot that is nobody's.
  [[gnu::always_inline]] std::uint32_t take_slot() {
    if (!ended.empty() && static_cast<std::uint32_t>(count) - ended[0].event > lag()) {
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
  /// The slot that was taken last, for whoever takes one next.
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
  /// What Event::detail is, as long as the event is in the window.
  std::uint32_t pass(Detail&& detail);
};

}  // namespace emm::trace
