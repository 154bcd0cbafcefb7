#include "replay/replay_core.hpp"

namespace emm::replay {

ReplayCore::ReplayCore(const trace::Trace& trace, Stack& stack, const ReplayOptions& options,
                       log::RecordSink* sink)
    : state{.trace = trace,
            .options = options,
            .has_threads = options.threads != ReplayOptions::Threads::trace},
      clock(stack.clock(), stack.model_clock()),
      checker(make_order_checker(trace, options)),
      contexts(state, clock, stack, checker.get(), held.live, sink != nullptr),
      held(trace, options),
      log(state, accounts, contexts, sink),
      judge(state, clock, accounts, contexts, held, log),
      order(state, clock, accounts, contexts, held, judge, checker.get()),
      checks(state, clock, contexts, held, judge) {
  if (options.pace > 0) {
    pace = std::make_unique<Pace>(clock.clock(), options.pace, options.interrupted);
  }
}

}  // namespace emm::replay
