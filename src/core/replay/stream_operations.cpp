#include "replay/stream_operations.hpp"

#include <algorithm>

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;

constexpr std::uint64_t kUsed = 4096;  ///< Bytes that `use` copies at most.

}  // namespace

void StreamOperations::judge(const Event& event, const Status& done) {
  if (!done && done.error().code == Errc::not_supported) return core_.order.count_refused();
  if (event.outcomes == 0 && done) return;
  core_.judge.judge(event, outcome_of(done), error_of(done));
}

StreamHandle StreamOperations::handle_of(const Event& event, ContextState& context) const {
  return context.stream(index(event.stream), event.thread);
}

void StreamOperations::create(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const ExcludedTime excluded(core_.clock);
  context->make_stream(index(event.stream), event.has(trace::event_flag::non_blocking)
                                                ? StreamKind::non_blocking
                                                : StreamKind::blocking);
}

void StreamOperations::destroy(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  if (core_.order.is_checked()) core_.order.order_before_destroy(event);
  const ExcludedTime excluded(core_.clock);
  context->drop_stream(index(event.stream));
}

void StreamOperations::synchronize(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const EngineWork work(core_.clock);
  const auto stream = handle_of(event, *context);
  judge(event, context->driver().stream_synchronize(stream));
  if (core_.checker) core_.checker->host_waits(context->device(), stream);
}

void StreamOperations::synchronize_device(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const EngineWork work(core_.clock);
  judge(event, context->driver().ctx_synchronize());
  if (core_.checker) core_.checker->host_waits_for_device(context->device());
}

void StreamOperations::record_event(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const EngineWork work(core_.clock);
  const auto stream = handle_of(event, *context);
  const auto record = core_.state.trace.detail(event).record;
  if (core_.checker) core_.checker->event_recorded(record, context->device(), stream);
  auto made = context->driver().event_create();
  auto done = made ? context->driver().event_record(*made, stream) : Status(made.error());
  if (made) recorded_[record] = {.event = *made, .context = context};
  judge(event, done);
  forget_after_last_mention(record);
}

void StreamOperations::wait_for_event(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const EngineWork work(core_.clock);
  const auto stream = handle_of(event, *context);
  const auto record = core_.state.trace.detail(event).record;
  if (core_.checker) core_.checker->stream_waits(context->device(), stream, record);
  // If the event was recorded before the recording began, there is nothing to wait for.
  if (const auto found = recorded_.find(record); found != recorded_.end()) {
    judge(event, context->driver().stream_wait_event(stream, found->second.event));
  }
  forget_after_last_mention(record);
}

void StreamOperations::synchronize_event(const Event& event) {
  const EngineWork work(core_.clock);
  const auto record = core_.state.trace.detail(event).record;
  if (const auto found = recorded_.find(record); found != recorded_.end()) {
    judge(event, found->second.context->driver().event_synchronize(found->second.event));
  }
  if (core_.checker) core_.checker->host_waits(record);
  forget_after_last_mention(record);
}

void StreamOperations::find_last_mentions() {
  const auto& trace = core_.state.trace;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto op = trace[at].op;
    if (op != Op::event_record && op != Op::stream_wait && op != Op::event_sync) continue;
    const auto record = trace.detail(trace[at]).record;
    if (record >= last_mention_.size()) last_mention_.resize(record + 1);
    last_mention_[record] = at;
  }
}

/// Destroys the device's event after its last mention in the trace.
void StreamOperations::forget_after_last_mention(std::uint32_t record) {
  const auto& trace = core_.state.trace;
  if (!trace.is_window() && last_mention_.empty()) find_last_mentions();
  const auto last = trace.is_window() ? trace.last_mention(record) : last_mention_[record];
  if (last != core_.state.at) return;
  if (core_.checker) core_.checker->forget_record(record);
  const auto found = recorded_.find(record);
  if (found == recorded_.end()) return;
  destroy_event(found->second);
  recorded_.erase(found);
}

void StreamOperations::destroy_event(const Recorded& recorded) {
  if (!recorded.context->open()) return;
  if (auto ended = recorded.context->driver().event_destroy(recorded.event); !ended) {
    core_.order.count_refused();
  }
}

void StreamOperations::destroy_events() {
  const EngineWork work(core_.clock);
  for (const auto& [record, recorded] : recorded_) destroy_event(recorded);
  recorded_.clear();
}

void StreamOperations::use(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const EngineWork work(core_.clock);
  const auto stream = handle_of(event, *context);
  for (const auto id : core_.state.trace.detail(event).uses) {
    const auto slot = core_.held.live.slot(id);
    if (slot == LiveSet::kNone || core_.held.live[slot].ended) {
      core_.judge.skip_unmade(event);
      continue;
    }
    const auto& live = core_.held.live[slot];
    const auto ptr = live.memory.device_pointer();
    const auto size = std::min(kUsed, std::min(live.size, live.memory.size()) / 2) & ~3ull;
    if (core_.checker) {
      core_.checker->used(context->device(), static_cast<std::uint32_t>(id), ptr, stream);
      const auto user = core_.order.stream_of(event);
      if (user != core_.order.stream_of(live)) core_.order.add_user(id, user);
    }
    if (size == 0 || !ptr) continue;
    judge(event, context->driver().memcpy_dtod_async(ptr + size, ptr, size, stream));
  }
}

void StreamOperations::record_stream(const Event& event) {
  const auto slot = core_.held.live.slot(event.id);
  if (slot == LiveSet::kNone || core_.held.live[slot].ended) return core_.judge.skip_unmade(event);
  const auto user = core_.order.stream_of(event);
  if (user != core_.order.stream_of(core_.held.live[slot])) core_.order.add_user(event.id, user);
}

}  // namespace emm::replay
