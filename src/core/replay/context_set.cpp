#include "replay/context_set.hpp"

#include <algorithm>

namespace emm::replay {

ContextSet::ContextSet(ReplayState& state, ReplayClock& clock, Stack& stack,
                       stream_order::Checker* order, const LiveSet& live, bool logged)
    : state_(state), clock_(clock), stack_(stack), live_(live), logged_(logged) {
  for (const auto& context : state.trace.contexts()) {
    contexts_.push_back(std::make_unique<ContextState>(context.device, reports_, order));
  }
}

bool ContextSet::open(ContextState& context) {
  const ExcludedTime excluded(clock_);
  if (auto created = context.create(stack_); !created) {
    state_.end_with(created.error());
    return false;
  }
  context.device_state = &devices_[context.device()];
  if (state_.has_threads && !context.device_state->shards) {
    context.device_state->shards = std::make_unique<AddressShards>(live_);
  }
  if (logged_) context.measure_capacity();
  const auto& names = state_.trace.streams();
  for (std::size_t stream = 1; stream < names.size(); ++stream) {
    if (names[stream] == "per_thread") context.set_per_thread(stream, !state_.has_threads);
  }
  return true;
}

bool ContextSet::shares_device(const ContextState& context) const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(), [&](const auto& other) {
    return other.get() != &context && other->open() && other->device() == context.device();
  });
}

void ContextSet::open_all() {
  const auto& trace = state_.trace;
  std::vector<bool> made(trace.streams().size());
  for (std::size_t at = 0; at < trace.size(); ++at) {
    if (trace[at].op == trace::Op::stream_create) made[index(trace[at].stream)] = true;
  }
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (event.has(trace::event_flag::backing)) continue;
    auto* context = use(event.context);
    if (context == nullptr) return;
    if (index(event.stream) != 0 && !made[index(event.stream)]) {
      context->stream(index(event.stream), event.thread);
    }
  }
}

}  // namespace emm::replay
