#include <algorithm>

#include "replay/run.hpp"

namespace emm::replay {
namespace {

constexpr std::uint64_t kTouched = 4096;  ///< Bytes that `use` moves at most.

}  // namespace

/// What the program does with streams costs the manager nothing.
void Run::done_in_order(const Event& event, const Status& done) {
  if (!done && done.error().code == Errc::not_supported) {
    ++order_refused_;
    return;
  }
  if (event.outcomes == 0 && done) return;
  settle(event, done ? Outcome::ok : outcome_of(done.error()), done ? nullptr : &done.error());
}

StreamHandle Run::handle_of(const Event& event, Lane& lane) {
  return lane.stream(index(event.stream), event.thread);
}

void Run::stream_create(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Hidden hidden(*this);
  lane->make_stream(index(event.stream), event.has(trace::event_flag::non_blocking)
                                             ? StreamKind::non_blocking
                                             : StreamKind::blocking);
}

void Run::stream_destroy(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  if (order_) order_destroyed(event);
  const Hidden hidden(*this);
  lane->drop_stream(index(event.stream));
}

void Run::stream_sync(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Ours quiet(*this);
  const auto stream = handle_of(event, *lane);
  done_in_order(event, lane->driver().stream_synchronize(stream));
  if (order_) order_->host_waits(lane->device(), stream);
}

void Run::device_sync(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Ours quiet(*this);
  done_in_order(event, lane->driver().ctx_synchronize());
  if (order_) order_->host_waits_for_device(lane->device());
}

void Run::event_record(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Ours quiet(*this);
  const auto stream = handle_of(event, *lane);
  const auto number = trace_.detail(event).record;
  if (order_) order_->event_recorded(number, lane->device(), stream);
  auto made = lane->driver().event_create();
  auto done = made ? lane->driver().event_record(*made, stream) : Status(made.error());
  if (made) recorded_[number] = {.event = *made, .lane = lane};
  done_in_order(event, done);
  last_mention(event, number);
}

void Run::stream_wait(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Ours quiet(*this);
  const auto stream = handle_of(event, *lane);
  const auto number = trace_.detail(event).record;
  if (order_) order_->stream_waits(lane->device(), stream, number);
  // Of a record that was made before the recording began there is nothing to wait for.
  if (const auto found = recorded_.find(number); found != recorded_.end()) {
    done_in_order(event, lane->driver().stream_wait_event(stream, found->second.event));
  }
  last_mention(event, number);
}

void Run::event_sync(const Event& event) {
  const Ours quiet(*this);
  const auto number = trace_.detail(event).record;
  if (const auto found = recorded_.find(number); found != recorded_.end()) {
    done_in_order(event, found->second.lane->driver().event_synchronize(found->second.event));
  }
  if (order_) order_->host_waits(number);
  last_mention(event, number);
}

/// A record that is not mentioned again costs nothing any more.
void Run::last_mention(const Event&, std::uint32_t number) {
  if (last_mention_.empty()) {
    for (std::size_t at = 0; at < trace_.size(); ++at) {
      const auto op = trace_[at].op;
      if (op != Op::event_record && op != Op::stream_wait && op != Op::event_sync) continue;
      const auto mentioned = trace_.detail(trace_[at]).record;
      if (mentioned >= last_mention_.size()) last_mention_.resize(mentioned + 1);
      last_mention_[mentioned] = at;
    }
  }
  if (last_mention_[number] != at_) return;
  if (order_) order_->forget_record(number);
  const auto found = recorded_.find(number);
  if (found == recorded_.end()) return;
  if (auto& lane = *found->second.lane; lane.open()) {
    if (auto ended = lane.driver().event_destroy(found->second.event); !ended) ++order_refused_;
  }
  recorded_.erase(found);
}

void Run::drop_records() {
  const Ours quiet(*this);
  for (const auto& [number, recorded] : recorded_) {
    if (!recorded.lane->open()) continue;
    if (auto ended = recorded.lane->driver().event_destroy(recorded.event); !ended) {
      ++order_refused_;
    }
  }
  recorded_.clear();
}

/// A copy from one half of the memory to the other, which leaves the content of `verify` as it is.
void Run::use(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const Ours quiet(*this);
  const auto stream = handle_of(event, *lane);
  for (const auto id : trace_.detail(event).uses) {
    const auto slot = live_.slot(id);
    if (slot == LiveSet::kNone || live_[slot].ended) {
      unmade(event);
      continue;
    }
    const auto& live = live_[slot];
    const auto ptr = live.memory.device_pointer();
    const auto size = std::min(kTouched, std::min(live.size, live.memory.size()) / 2) & ~3ull;
    if (order_) {
      order_->used(lane->device(), static_cast<std::uint32_t>(id), ptr, stream);
      if (stream_of(event) != stream_of(live)) order_reaches(id, stream_of(event));
    }
    if (size == 0 || !ptr) continue;
    done_in_order(event, lane->driver().memcpy_dtod_async(ptr + size, ptr, size, stream));
  }
}

void Run::record_stream(const Event& event) {
  const auto slot = live_.slot(event.id);
  if (slot == LiveSet::kNone || live_[slot].ended) return unmade(event);
  if (stream_of(event) != stream_of(live_[slot])) order_reaches(event.id, stream_of(event));
}

}  // namespace emm::replay
