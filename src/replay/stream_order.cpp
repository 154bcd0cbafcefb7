#include <algorithm>

#include "replay/parallel.hpp"
#include "replay/run.hpp"

namespace emm::replay {

void Run::order_allocated(const Live& live) {
  auto& lane = *lanes_[index(live.context)];
  order_->allocated(lane.device(), static_cast<std::uint32_t>(live.id),
                    live.memory.device_pointer(), live.size,
                    lane.stream(index(live.stream), live.made_on));
  report_hazards();
}

void Run::order_reaches(AllocId id, const Stream& stream) {
  auto& streams = reached_[id];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

bool Run::is_others(const Stream& stream) const noexcept {
  if (!parallel_ || stream.id != per_thread_) return false;
  return !parallel_->running() || trace_[at_].thread != stream.thread;
}

/// What comes on `stream` comes after what is on `other` now.
void Run::order_after(Lane& lane, StreamHandle stream, StreamHandle other) {
  auto& driver = lane.driver();
  auto event = driver.event_create();
  auto done = event ? driver.event_record(*event, other) : Status(event.error());
  if (done) done = driver.stream_wait_event(stream, *event);
  if (event) {
    if (auto ended = driver.event_destroy(*event); !ended && done) done = ended;
  }
  if (!done && !driver.stream_synchronize(other)) ++order_refused_;
}

/// A manager knows one stream of an allocation. Where the trace says that others use it too, its
/// own is made to wait for them, as the program must that gives it back.
void Run::order_ending(const Live& live, StreamHandle freed_on) {
  auto& lane = *lanes_[index(live.context)];
  if (const auto found = reached_.find(live.id); found != reached_.end()) {
    const Ours quiet(*this);
    const auto own = stream_of(live);
    bool unnamed = false;
    for (const auto& stream : found->second) {
      if (stream == own) continue;
      if (is_others(own) || is_others(stream)) {
        unnamed = true;
      } else {
        order_back(live, lane.stream(index(stream.id), stream.thread));
      }
    }
    reached_.erase(found);
    if (unnamed) {
      if (auto done = lane.driver().ctx_synchronize(); !done) ++order_refused_;
      order_->host_waits_for_device(lane.device());
    }
  }
  order_->ending(lane.device(), static_cast<std::uint32_t>(live.id), live.memory.device_pointer(),
                 freed_on);
}

/// The memory's own stream comes after what is on `stream` now; where nothing can be put there, as
/// it was destroyed or is another thread's, the host does.
void Run::order_back(const Live& live, StreamHandle stream) {
  auto& lane = *lanes_[index(live.context)];
  const auto own = stream_of(live);
  order_->came_back(lane.device(), static_cast<std::uint32_t>(live.id),
                    live.memory.device_pointer(), stream);
  if (!is_others(own) && (own.id == StreamId{} || lane.known_stream(index(own.id)).value != 0)) {
    return order_after(lane, lane.stream(index(own.id), own.thread), stream);
  }
  if (!lane.driver().stream_synchronize(stream)) ++order_refused_;
  order_->host_waits(lane.device(), stream);
}

/// What is used on a stream comes back from there when that is destroyed: later nothing can wait
/// for it.
void Run::order_destroyed(const Event& event) {
  const auto& lane = *lanes_[index(event.context)];
  const auto handle = lane.known_stream(index(event.stream));
  if (handle.value == 0 || handle == kPerThreadStream) return;
  const Ours quiet(*this);
  for (auto& [id, streams] : reached_) {
    const auto slot = live_.slot(id);
    if (slot == LiveSet::kNone || live_[slot].context != event.context) continue;
    const auto found = std::find(streams.begin(), streams.end(), stream_of(event));
    if (found == streams.end()) continue;
    streams.erase(found);
    order_back(live_[slot], handle);
  }
}

/// The program ends when its work has.
void Run::order_all_done() {
  if (!order_) return;
  const Ours quiet(*this);
  for (const auto& lane : lanes_) {
    if (!lane->open()) continue;
    if (auto done = lane->driver().ctx_synchronize(); !done) ++order_refused_;
    order_->host_waits_for_device(lane->device());
  }
}

std::string Run::whose(const order::Hazard& hazard) const {
  const auto line = [&](std::uint64_t event) {
    return event < trace_.size() ? trace_[event].line : 0;
  };
  auto words = text::format("{} ({} at line {}", trace_.name(AllocId{hazard.id}),
                            trace::name(trace_[hazard.born].op), line(hazard.born));
  if (!hazard.ended) return words + ", live)";
  return words + (*hazard.ended < trace_.size()
                      ? text::format(", {} at line {})", trace::name(trace_[*hazard.ended].op),
                                     line(*hazard.ended))
                      : std::string(", live to the end)"));
}

void Run::report_hazards() {
  if (!order_->any_found()) return;
  const auto stream = [&](std::uint32_t tag) {
    return tag < trace_.streams().size() ? text::format("stream {}", trace_.streams()[tag])
                                         : std::string("a stream of the manager's");
  };
  using How = order::Hazard::How;
  for (const auto& hazard : order_->take_found()) {
    ++pass_.hazards;
    const auto work = text::format("the work on {} of {}", stream(hazard.stream), whose(hazard));
    if (hazard.how == How::handed_out) {
      violation(
          log::Violation::Kind::hazard,
          text::format("{} on {} has memory of {}, and nothing orders it after the work on {}",
                       trace_.name(AllocId{hazard.to}), stream(hazard.to_stream), whose(hazard),
                       stream(hazard.stream)));
    } else {
      violation(log::Violation::Kind::hazard,
                text::format("memory was {} before {} was over",
                             hazard.how == How::unmapped ? "unmapped" : "given back", work));
    }
  }
}

}  // namespace emm::replay
