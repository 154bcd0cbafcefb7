#pragma once

#include <cstdint>
#include <memory>

#include "log/record.hpp"
#include "replay/accounts.hpp"
#include "replay/context_set.hpp"
#include "replay/record_order.hpp"
#include "replay/replay_state.hpp"

namespace emm::replay {

/// Makes the records of a run and hands them to its log, if it has one.
class RecordLog {
 public:
  /// `log` may be null.
  RecordLog(const ReplayState& state, const Accounts& accounts, const ContextSet& contexts,
            log::RecordSink* log) noexcept
      : state_(state), accounts_(accounts), contexts_(contexts), log_(log) {}

  bool is_on() const noexcept { return log_ != nullptr; }
  /// From here on, orders the records of `threads` threads before it writes them.
  void begin_threads(std::size_t threads);
  /// Null if one thread replays or there is no log.
  RecordOrder* order() noexcept { return order_.get(); }
  /// Writes the records of the threads. REQUIRES: no thread runs.
  void write_ordered();

  /// Records the outcome of the current `event`. `freed_kind` is the operation that made the freed
  /// memory. `late` means that a reset had already ended it.
  void add(const trace::Event& event, trace::Outcome outcome, Times times, std::uint64_t address,
           std::uint64_t size, trace::Op freed_kind = trace::Op::memalloc, bool late = false);
  /// Like add(), for a thread with its own buffer and place. `at` is the index of its event.
  void add_at(RecordOrder::Buffer& buffer, std::uint64_t place, std::uint64_t at,
              const trace::Event& event, trace::Outcome outcome, Times times, std::uint64_t address,
              std::uint64_t size, trace::Op freed_kind) const;
  /// Records memory that another operation ended: a reset, the end of its context or of a pass.
  void add_ended(trace::Op op, AllocId id, ContextId context, Times times, std::uint64_t address,
                 std::uint64_t size, trace::Op made_by);

 private:
  log::Record record_of(std::uint64_t at, const trace::Event& event, trace::Outcome outcome,
                        Times times, std::uint64_t address, std::uint64_t size,
                        trace::Op freed_kind) const;
  log::Gauges gauges(const ContextState& context) const;

  const ReplayState& state_;
  const Accounts& accounts_;
  const ContextSet& contexts_;
  log::RecordSink* log_;
  std::unique_ptr<RecordOrder> order_;  ///< Set if several threads log; log_ then points to it.
};

}  // namespace emm::replay
