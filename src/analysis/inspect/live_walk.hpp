#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_sum.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::inspect {

/// What one id stands for while it is live: a Lifetime whose end is not known yet, and its place.
/// Addresses and granted bytes are 0 if they are not recorded.
struct LiveMemory {
  std::uint64_t size = 0, time_ns = 0, address = 0, granted = 0;
  std::uint32_t birth = trace::kNever;
  std::uint32_t process = 0;
  SiteId site{};
  ThreadId thread{};
  StreamId stream{};
  ContextId context{};
  trace::Lifetime::What what = trace::Lifetime::What::nothing;
  bool preexisting = false, mapped = false;
  bool over = false;  ///< It has ended; only a free of it may follow.
};

class LiveWalk;

/// Watches a LiveWalk. For each event, what it begins or ends comes first, in the order of
/// Lifetimes::walk().
class LiveVisitor {
 public:
  virtual ~LiveVisitor() = default;
  /// Called once, before the first event that is not of the trace's beginning, or at the end. What
  /// existed before the recording has then begun, and is live after event `first_moment`.
  virtual void recording_begins(const LiveWalk&, std::uint32_t /*first_moment*/) {}
  virtual void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) = 0;
  virtual void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) = 0;
  virtual void passed(const LiveWalk& walk, std::uint32_t event,
                      const trace::Operation& operation) = 0;
  /// An "x-" operation, which is no event. `event` is the next one.
  virtual void told(std::uint32_t /*event*/, const trace::Operation& /*operation*/) {}
};

/// Goes over a trace once, as its operations come. It holds only what is live, the call sites, and
/// the names of threads, streams and contexts.
///
/// The operations must be in the order of their seq, no free may complete later than its request,
/// and what existed before the recording must be named at its beginning. Otherwise reading ends
/// with an error, and needs_memory() is true.
class LiveWalk final : public trace::OperationSink {
 public:
  /// The visitors must outlive it.
  LiveWalk(std::string source, std::vector<LiveVisitor*> visitors);

  Status on_header(const trace::Header& header) override { return trace_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// Called before the header, to begin in the middle of a trace. The first operations are then
  /// those that made what is live, and an unknown id is no fault. go_on_at() says which event comes
  /// next.
  void begin_in_the_middle();
  void go_on_at(std::uint32_t event) noexcept { events_ = event; }

  /// Has the recording begun? Until then only a part of what existed before it is live.
  bool has_begun() const noexcept { return has_begun_; }
  /// The place of the event after which memory is as the recording found it.
  const trace::Trace::Place& first_moment_place() const noexcept { return first_moment_place_; }

  bool needs_memory() const noexcept { return needs_memory_ || trace_.needs_memory(); }
  /// What is known of the trace so far. Of its events it has only the last one that was passed.
  const trace::Trace& trace() const noexcept { return trace_; }
  trace::Trace& trace() noexcept { return trace_; }
  const trace::Event& event() const noexcept { return trace_.last_event(); }
  std::uint32_t events() const noexcept { return events_; }
  /// What the event that is passed now makes or ends.
  const LiveMemory& operator[](AllocId id) const noexcept { return memory_[index(id)]; }
  std::uint32_t device(const LiveMemory& memory) const noexcept {
    return trace_.contexts()[index(memory.context)].device;
  }
  /// Calls each(id, memory) for all that is live, in no order.
  template <class Each>
  void each_live(const Each& each) const {
    for (std::size_t i = 1; i < memory_.size(); ++i) {
      const auto& memory = memory_[i];
      if (!memory.over && memory.what != trace::Lifetime::What::nothing)
        each(static_cast<AllocId>(i), memory);
    }
  }

 private:
  void begin(const trace::Operation& operation, const trace::Event& event);
  void end(LiveMemory& memory);
  void begin_recording();
  Status add_up(const trace::Event& event, std::uint64_t bytes);

  std::vector<LiveVisitor*> visitors_;
  trace::Trace trace_;
  std::vector<LiveMemory> memory_;  // by AllocId
  std::uint32_t events_ = 0;
  ByteSum sum_;
  bool needs_memory_ = false, has_seqs_ = false;
  bool has_begun_ = false, in_the_middle_ = false;
  trace::Trace::Place first_moment_place_;
};

}  // namespace emm::inspect
