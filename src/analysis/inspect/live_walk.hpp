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
  virtual void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) = 0;
  virtual void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) = 0;
  virtual void passed(const LiveWalk& walk, std::uint32_t event,
                      const trace::Operation& operation) = 0;
};

/// Goes over a trace once, as its operations come. It holds only what is live, the call sites, and
/// the names of threads, streams and contexts.
///
/// The operations must be in the order of their seq, and no free may complete later than its
/// request. Otherwise reading ends with an error, and needs_memory() is true.
class LiveWalk final : public trace::OperationSink {
 public:
  /// The visitors must outlive it.
  LiveWalk(std::string source, std::vector<LiveVisitor*> visitors);

  Status on_header(const trace::Header& header) override { return trace_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override { return trace_.finish(); }

  /// Called before the header, to begin in the middle of a trace. The first operations are then
  /// those that made what is live, and an unknown id is no fault. go_on_at() says which event comes
  /// next.
  void begin_in_the_middle();
  void go_on_at(std::uint32_t event) noexcept { events_ = event; }

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
  Status add_up(const trace::Event& event, std::uint64_t bytes);

  std::vector<LiveVisitor*> visitors_;
  trace::Trace trace_;
  std::vector<LiveMemory> memory_;  // by AllocId
  std::uint32_t events_ = 0;
  ByteSum sum_;
  bool needs_memory_ = false, has_seqs_ = false;
};

}  // namespace emm::inspect
