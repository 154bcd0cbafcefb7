#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "trace/trace.hpp"

namespace emm::trace {

// The end of what the trace does not end.
inline constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

/// What one id of a trace is, and the events between which it lives. Events are indices into the
/// trace, counted from 0.
struct Lifetime {
  enum class MemoryKind : std::uint8_t {
    nothing,  ///< The trace does not make it, or its request failed.
    device,   ///< The program's memalloc and memallocmanaged, which "live" counts.
    host,     ///< memhostalloc and mempin.
    import,   ///< open_ipc_handle: memory of another process.
    backing,  ///< What the recorded manager held from the device, which "reserved" counts.
  };
  std::uint64_t size = 0;
  std::uint32_t birth = kNever;
  std::uint32_t death =
      kNever;  ///< The event that asks for its end; kNever if it is live at the end.
  /// The event from which its address was free again. It is `death` unless the trace names a later
  /// one, and kNever if the recording ends before.
  std::uint32_t gone = kNever;
  SiteId site{};
  ThreadId thread{};
  StreamId stream{};
  ContextId context{};
  MemoryKind what = MemoryKind::nothing;
  bool preexisting = false;

  bool live_at(std::uint32_t event) const noexcept { return birth <= event && event < death; }
};

/// Returns what an event makes. REQUIRES: it makes something.
Lifetime::MemoryKind what_of(const Event& event) noexcept;

/// Answers whether this is a request for device memory that the recorded manager refused, and that
/// the trace does not expect to fail. The program needs the memory at this moment. How long it
/// would have kept it is unknown.
bool is_refused(const Event& event) noexcept;

/// Which requests of a trace a report counts.
enum class CountedRequests : std::uint8_t {
  all,     ///< All requests of the program.
  served,  ///< Those that the recording served (--as-recorded).
};

/// Holds the lifetime of every id of a trace, and what begins and ends at each event. The trace
/// must outlive it.
class Lifetimes {
 public:
  explicit Lifetimes(const Trace& trace);

  /// Errors: parse_error if the sum of all sizes does not fit into 64 bits. The reports that use
  /// lifetimes add sizes without a check.
  Status can_be_summed() const;

  /// Returns the most bytes of `what` that exist after an event. For `backing`, this is what the
  /// recorded manager held at most; 0 if the trace does not tell.
  std::uint64_t peak_of(Lifetime::MemoryKind what) const;

  const Trace& trace() const noexcept { return trace_; }
  const std::vector<Lifetime>& all() const noexcept { return lifetimes_; }
  const Lifetime& operator[](AllocId id) const noexcept { return lifetimes_[index(id)]; }
  std::uint32_t device(const Lifetime& lifetime) const noexcept {
    return trace_.contexts()[index(lifetime.context)].device;
  }

  /// Calls began(event, id) and ended(event, id) for each beginning and end, then passed(event). A
  /// reset ends its memory at its own event, in the order of ids.
  template <class Began, class Ended, class Passed>
  void walk(const Began& began, const Ended& ended, const Passed& passed) const {
    std::size_t reset = 0;
    const auto first_moment = static_cast<std::uint32_t>(trace_.first_moment());
    for (std::uint32_t event = 0; event < trace_.size(); ++event) {
      const auto& each = trace_[event];
      if (event == first_moment) {
        for (const auto id : named_late_) began(event, id);
      }
      if (makes_or_ends(each.op)) {
        const auto& lifetime = lifetimes_[index(each.id)];
        const bool makes = each.op != trace::Op::free && each.op != trace::Op::close_ipc_handle;
        if (makes && lifetime.birth == event) began(event, each.id);
        if (lifetime.death == event) ended(event, each.id);
      }
      for (; reset < by_reset_.size() && by_reset_[reset].first == event; ++reset)
        ended(event, by_reset_[reset].second);
      passed(event);
    }
  }
  /// The same, for whoever looks at what is live after an event. What existed before the recording
  /// exists at one moment, so passed() is first called for the trace's first_moment().
  template <class Began, class Ended, class Passed>
  void walk_moments(const Began& began, const Ended& ended, const Passed& passed) const {
    walk(began, ended, [&](std::uint32_t event) {
      if (event >= trace_.first_moment()) passed(event);
    });
  }

 private:
  static bool makes_or_ends(Op op) noexcept;

  const Trace& trace_;
  std::vector<Lifetime> lifetimes_;
  std::vector<std::pair<std::uint32_t, AllocId>> by_reset_;  // what a reset ends, by event
  std::vector<AllocId> named_late_;  // old memory that the trace names after its first moment
};

}  // namespace emm::trace
