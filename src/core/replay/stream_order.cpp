#include "replay/stream_order.hpp"

#include <algorithm>

#include "replay/current_event.hpp"

namespace emm::replay {
namespace {

/// Answers whether the trace has memory, or work on it, on several streams.
bool has_several_streams(const trace::Trace& trace) {
  if (trace.streams().size() < 2) return false;
  if (find_per_thread(trace) && trace.threads().size() > 1) return true;
  if (trace.is_window()) return trace.has_several_streams();
  std::optional<StreamId> only;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (event.has(trace::event_flag::backing)) continue;
    const bool says_stream = event.op == trace::Op::memalloc || event.op == trace::Op::use ||
                             event.op == trace::Op::record_stream ||
                             (event.op == trace::Op::free && index(event.stream) != 0);
    if (!says_stream) continue;
    if (only.value_or(event.stream) != event.stream) return true;
    only = event.stream;
  }
  return false;
}

}  // namespace

std::optional<StreamId> find_per_thread(const trace::Trace& trace) {
  const auto& names = trace.streams();
  const auto found = std::find(names.begin(), names.end(), "per_thread");
  if (found == names.end()) return std::nullopt;
  return static_cast<StreamId>(found - names.begin());
}

std::unique_ptr<stream_order::Checker> make_order_checker(const trace::Trace& trace,
                                                          const ReplayOptions& options) {
  if (!options.checks || !has_several_streams(trace)) return nullptr;
  auto checker = std::make_unique<stream_order::Checker>(&current_event);
  if (trace.is_window()) {  // a hazard's events may have left the window when it is found
    checker->tell_of_each(
        [&trace](std::uint32_t id, bool ended, stream_order::AllocationDescription& description) {
          const auto at = current_event();
          const auto* event = at < trace.size() ? &trace[at] : nullptr;
          const auto line = event != nullptr ? event->line : 0;
          const auto op = event != nullptr ? static_cast<std::uint8_t>(event->op) : std::uint8_t{0};
          if (ended) {
            description.ended_line = line;
            description.ended_by = op;
          } else {
            description = {.name = trace.name(AllocId{id}), .made_line = line, .made_by = op};
          }
        });
  }
  return checker;
}

void StreamOrder::add_user(AllocId id, const Stream& stream) {
  auto& streams = users_[id];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

/// Answers whether the stream is the per-thread stream of another thread, which has no handle here.
bool StreamOrder::is_of_other_thread(const Stream& stream) const noexcept {
  if (!state_.has_threads || stream.id != per_thread_) return false;
  return !state_.threads_running || state_.trace[state_.at].thread != stream.thread;
}

/// Makes later work on `stream` wait for the work that is on `other` now.
void StreamOrder::make_wait(ContextState& context, StreamHandle stream, StreamHandle other) {
  auto& driver = context.driver();
  auto event = driver.event_create();
  auto done = event ? driver.event_record(*event, other) : Status(event.error());
  if (done) done = driver.stream_wait_event(stream, *event);
  if (event) {
    if (auto ended = driver.event_destroy(*event); !ended && done) done = ended;
  }
  if (!done && !driver.stream_synchronize(other)) count_refused();
}

void StreamOrder::order_before_free(const Live& live, StreamHandle freed_on) {
  auto& context = contexts_[live.context];
  if (const auto found = users_.find(live.id); found != users_.end()) {
    const EngineWork work(clock_);
    const auto own = stream_of(live);
    bool some_unnamed = false;
    for (const auto& stream : found->second) {
      if (stream == own) continue;
      if (is_of_other_thread(own) || is_of_other_thread(stream)) {
        some_unnamed = true;
      } else {
        make_owner_wait(live, context.stream(index(stream.id), stream.thread));
      }
    }
    users_.erase(found);
    if (some_unnamed) {
      if (auto done = context.driver().ctx_synchronize(); !done) count_refused();
      checker_->host_waits_for_device(context.device());
    }
  }
  checker_->ending(context.device(), static_cast<std::uint32_t>(live.id),
                   live.memory.device_pointer(), freed_on);
}

/// Makes the memory's own stream wait for the work that is on `stream` now. If the own stream was
/// destroyed or belongs to another thread, the host waits instead.
void StreamOrder::make_owner_wait(const Live& live, StreamHandle stream) {
  auto& context = contexts_[live.context];
  const auto own = stream_of(live);
  checker_->came_back(context.device(), static_cast<std::uint32_t>(live.id),
                      live.memory.device_pointer(), stream);
  if (!is_of_other_thread(own) &&
      (own.id == StreamId{} || context.known_stream(index(own.id)).value != 0)) {
    return make_wait(context, context.stream(index(own.id), own.thread), stream);
  }
  if (!context.driver().stream_synchronize(stream)) count_refused();
  checker_->host_waits(context.device(), stream);
}

void StreamOrder::order_before_destroy(const trace::Event& event) {
  const auto& context = contexts_[event.context];
  const auto handle = context.known_stream(index(event.stream));
  if (handle.value == 0 || handle == kPerThreadStream) return;
  const EngineWork work(clock_);
  for (auto& [id, streams] : users_) {
    const auto slot = held_.live.slot(id);
    if (slot == LiveSet::kNone || held_.live[slot].context != event.context) continue;
    const auto found = std::find(streams.begin(), streams.end(), stream_of(event));
    if (found == streams.end()) continue;
    streams.erase(found);
    make_owner_wait(held_.live[slot], handle);
  }
}

void StreamOrder::finish_all_work() {
  const EngineWork work(clock_);
  contexts_.for_each_open([&](ContextState& context) {
    if (auto done = context.driver().ctx_synchronize(); !done) count_refused();
    checker_->host_waits_for_device(context.device());
  });
}

std::string StreamOrder::describe(const stream_order::Hazard& hazard) const {
  const auto& trace = state_.trace;
  if (trace.is_window()) {
    const auto& description = hazard.description;
    const auto op = [](std::uint8_t of) { return trace::name(static_cast<trace::Op>(of)); };
    auto words = text::format("{} ({} at line {}", description.name, op(description.made_by),
                              description.made_line);
    if (!hazard.ended) return words + ", live)";
    return words +
           (*hazard.ended < trace.size()
                ? text::format(", {} at line {})", op(description.ended_by), description.ended_line)
                : std::string(", live to the end)"));
  }
  const auto line = [&](std::uint64_t event) {
    return event < trace.size() ? trace[event].line : 0;
  };
  auto words = text::format("{} ({} at line {}", trace.name(AllocId{hazard.id}),
                            trace::name(trace[hazard.born].op), line(hazard.born));
  if (!hazard.ended) return words + ", live)";
  return words + (*hazard.ended < trace.size()
                      ? text::format(", {} at line {})", trace::name(trace[*hazard.ended].op),
                                     line(*hazard.ended))
                      : std::string(", live to the end)"));
}

void StreamOrder::report_hazards() {
  if (!has_hazards()) return;
  const auto& trace = state_.trace;
  const auto stream = [&](std::uint32_t tag) {
    return tag < trace.streams().size() ? text::format("stream {}", trace.streams()[tag])
                                        : std::string("a stream of the manager's");
  };
  using How = stream_order::Hazard::How;
  for (const auto& hazard : checker_->take_found()) {
    ++accounts_.pass.hazards;
    const auto work = text::format("the work on {} of {}", stream(hazard.stream), describe(hazard));
    if (hazard.how == How::handed_out) {
      judge_.add_violation(
          log::Violation::Kind::hazard,
          text::format("{} on {} has memory of {}, and nothing orders it after the work on {}",
                       trace.name(AllocId{hazard.to}), stream(hazard.to_stream), describe(hazard),
                       stream(hazard.stream)));
    } else {
      judge_.add_violation(
          log::Violation::Kind::hazard,
          text::format("memory was {} before {} was over",
                       hazard.how == How::unmapped ? "unmapped" : "released", work));
    }
  }
}

}  // namespace emm::replay
