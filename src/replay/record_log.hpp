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
  /// From here on the records of `threads` threads are put into one order before they are written.
  void begin_threads(std::size_t threads);
  /// Null where one thread replays, or there is no log.
  RecordOrder* order() noexcept { return order_.get(); }
  /// Writes what threads have recorded. REQUIRES: no thread runs.
  void write_ordered();

  /// What became of `event`, which is being executed. `freed_kind` is the operation that made what
  /// ended; `late` says that a reset had ended it before.
  void add(const trace::Event& event, trace::Outcome outcome, Times times, std::uint64_t address,
           std::uint64_t size, trace::Op freed_kind = trace::Op::memalloc, bool late = false);
  /// As add(), for a thread with a buffer and a place of its own; `at` is its event's index.
  void add_at(RecordOrder::Buffer& buffer, std::uint64_t place, std::uint64_t at,
              const trace::Event& event, trace::Outcome outcome, Times times, std::uint64_t address,
              std::uint64_t size, trace::Op freed_kind) const;
  /// Memory that another operation ended: a reset, the end of its context or of a pass.
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
  std::unique_ptr<RecordOrder> order_;  ///< Present if several threads log; log_ is then this.
};

}  // namespace emm::replay
