#pragma once

#include <memory>

#include "replay/accounts.hpp"
#include "replay/context_set.hpp"
#include "replay/holdings.hpp"
#include "replay/judge.hpp"
#include "replay/memory_checks.hpp"
#include "replay/pace.hpp"
#include "replay/record_log.hpp"
#include "replay/replay_clock.hpp"
#include "replay/replay_state.hpp"
#include "replay/stream_order.hpp"

namespace emm::replay {

/// What all operations of a replay work on. Each part has its state and functions to itself, and
/// uses the parts above it. They end in reverse: memory before its context, all before the checker
/// that watches the drivers.
struct ReplayCore {
  ReplayCore(const trace::Trace& trace, Stack& stack, const ReplayOptions& options,
             log::RecordSink* sink);

  ReplayState state;
  ReplayClock clock;
  Accounts accounts;
  const std::unique_ptr<order::Checker> checker;  ///< Null where all is on one stream.
  ContextSet contexts;
  Holdings held;
  RecordLog log;
  Judge judge;
  StreamOrder order;
  MemoryChecks checks;
  std::unique_ptr<Pace> pace;  ///< Null where recorded times are not kept.

  std::uint64_t now() const noexcept { return clock.now(); }
};

/// Measures a call of a manager.
template <class Call>
auto timed(const ReplayCore& core, Times& times, Call call) {
  times.begin_ns = core.now();
  auto result = call();
  times.end_ns = core.now();
  return result;
}

}  // namespace emm::replay
