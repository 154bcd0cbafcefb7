#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "inspect/address_space.hpp"
#include "inspect/held_memory.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::inspect {

/// What one id stands for: a Lifetime whose end may not be known yet, and its place. Addresses and
/// granted bytes are 0 if they are not recorded.
struct LiveMemory {
  std::uint64_t size = 0, time_ns = 0, address = 0, granted = 0;
  std::uint32_t birth = trace::kNever;
  /// As Lifetime::gone, once it has ended.
  std::uint32_t gone = trace::kNever;
  std::uint32_t process = 0;
  SiteId site{};
  ThreadId thread{};
  StreamId stream{};
  ContextId context{};
  trace::Lifetime::MemoryKind what = trace::Lifetime::MemoryKind::nothing;
  bool preexisting = false, mapped = false;
  bool over = false;      ///< It has ended; only a free of it may follow.
  bool by_reset = false;  ///< completed() is told this: a reset ended it.

  bool is_live() const noexcept { return !over && what != trace::Lifetime::MemoryKind::nothing; }
  bool is_device() const noexcept { return what == trace::Lifetime::MemoryKind::device; }
};

class Walk;

/// Watches a Walk. For each event, what it begins or ends comes first, in the order of
/// Lifetimes::walk().
class Visitor {
 public:
  virtual ~Visitor() = default;
  /// Called once, before the first event that is not of the trace's beginning, or at the end. What
  /// existed before the recording has then begun, and is live after event `first_moment`.
  virtual void recording_begins(const Walk&, std::uint32_t /*first_moment*/) {}
  virtual void began(const Walk&, std::uint32_t /*event*/, const LiveMemory&) {}
  virtual void ended(const Walk&, std::uint32_t /*event*/, const LiveMemory&) {}
  /// The address of memory that ended at an earlier event is free again.
  virtual void completed(const Walk&, std::uint32_t /*event*/, const LiveMemory&) {}
  virtual void passed(const Walk&, std::uint32_t /*event*/) {}
  /// Has a walk to call told()?
  virtual bool listens() const { return false; }
  /// An operation of a file that is read, before its event is passed. An "x-" operation is no
  /// event, and `event` is the next one.
  virtual void told(const Walk&, std::uint32_t /*event*/, const trace::Operation&) {}
};

/// Goes over a trace once, and tells visitors of each event: a trace in memory (MemoryWalk), or one
/// that is read (LiveWalk).
class Walk {
 public:
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
  virtual ~Walk() = default;

  const trace::Trace& trace() const noexcept { return *trace_; }
  /// Has the recording begun? Until then only a part of what existed before it is live.
  bool has_begun() const noexcept { return has_begun_; }
  /// The number of events that were passed.
  std::uint32_t events() const noexcept { return events_; }
  /// The event that is passed now, or the last one.
  const trace::Event& event() const noexcept { return *event_; }
  /// What the event makes, uses or ends.
  const LiveMemory& memory() const noexcept { return *memory_; }
  std::uint32_t device(const LiveMemory& memory) const noexcept {
    return trace_->contexts()[index(memory.context)].device;
  }
  /// The place of the event after which memory is as the recording found it.
  const trace::Trace::Place& first_moment_place() const noexcept { return first_moment_place_; }

  /// Answers what Recording::has_row() answers of the event.
  virtual bool has_row() const = 0;
  /// Answers what Recording::device_free() answers of what the event asks for.
  virtual std::optional<std::uint64_t> device_free() const = 0;
  /// Calls each(memory) for all that is live, in no order.
  virtual void each_live(const std::function<void(const LiveMemory&)>& each) const = 0;
  /// Returns where device memory lies after the event, as space_after() does.
  virtual std::optional<AddressSpace> space(
      std::uint32_t event, std::optional<std::uint32_t> device = std::nullopt) const = 0;
  /// Stores the place of an event that a report names. A trace in memory knows it.
  virtual void note_place(std::uint32_t /*event*/, const trace::Trace::Place&) {}

  /// Adds up what is live now.
  HeldMemory held(std::optional<std::uint32_t> device = std::nullopt) const {
    HeldMemorySum sum;
    each_live([&](const LiveMemory& memory) {
      if (memory.is_device() && (!device || this->device(memory) == *device))
        sum.add(memory.size, memory.site);
    });
    return sum.sum();
  }

 protected:
  explicit Walk(const trace::Trace& trace) : trace_(&trace) {}

  const trace::Trace* trace_;
  const trace::Event* event_ = nullptr;
  const LiveMemory* memory_ = nullptr;
  trace::Trace::Place first_moment_place_;
  std::uint32_t events_ = 0;
  bool has_begun_ = false;
};

}  // namespace emm::inspect
