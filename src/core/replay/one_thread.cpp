#include "replay/one_thread.hpp"

#include <atomic>

namespace emm::replay {
namespace {

template <unsigned F>
std::size_t execute_range_with(ReplayCore& core, Operations& operations, std::size_t begin,
                               std::size_t end) {
  static constexpr std::atomic<bool> kNotInterrupted{false};
  auto& state = core.state;
  const auto& interrupted =
      state.options.interrupted != nullptr ? *state.options.interrupted : kNotInterrupted;
  OneThread<F> access(core, operations);
  for (state.at = begin; state.at < end; ++state.at) {
    const auto& event = state.trace[state.at];
    if constexpr ((F & feature::watched) != 0) {
      if (core.pace && !state.has_threads) {
        core.accounts.waited_ns += core.pace->wait(event.time_ns, core.accounts.lateness);
      }
    }
    execute(access, event);
    if (state.stop) [[unlikely]]
      return state.at + 1;
    if (interrupted.load(std::memory_order_relaxed)) [[unlikely]] {
      core.judge.summary.interrupted = true;
      state.stop = true;
      return state.at + 1;
    }
  }
  return end;
}

}  // namespace

std::size_t execute_range(ReplayCore& core, Operations& operations, std::size_t begin,
                          std::size_t end) {
  using namespace feature;
  const auto& options = core.state.options;
  const bool watches = core.log.is_on() || options.verify || core.checker || core.pace;
  switch ((options.checks ? checks : 0) | (options.latency ? times : 0) | (watches ? watched : 0)) {
    case 0:
      return execute_range_with<0>(core, operations, begin, end);
    case checks:
      return execute_range_with<checks>(core, operations, begin, end);
    case times:
      return execute_range_with<times>(core, operations, begin, end);
    case checks | times:
      return execute_range_with<checks | times>(core, operations, begin, end);
    case watched:
      return execute_range_with<watched>(core, operations, begin, end);
    case checks | watched:
      return execute_range_with<checks | watched>(core, operations, begin, end);
    case times | watched:
      return execute_range_with<times | watched>(core, operations, begin, end);
    default:
      return execute_range_with<checks | times | watched>(core, operations, begin, end);
  }
}

}  // namespace emm::replay
