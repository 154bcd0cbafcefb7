#pragma once

#include <memory>

#include "driver/call.hpp"
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

/// The shared parts of a replay. Each part uses only the parts above it. They are destroyed in
/// reverse order: memory before its context, and all before the checker that watches the drivers.
struct ReplayCore {
  ReplayCore(const trace::Trace& trace, Stack& stack, const ReplayOptions& options,
             log::RecordSink* sink);

  ReplayState state;
  ReplayClock clock;
  Accounts accounts;
  const std::unique_ptr<stream_order::Checker> checker;  ///< Null if all work is on one stream.
  ContextSet contexts;
  Holdings held;
  RecordLog log;
  Judge judge;
  StreamOrder order;
  MemoryChecks checks;
  std::unique_ptr<Pace> pace;  ///< Null unless the replay keeps recorded times.

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
