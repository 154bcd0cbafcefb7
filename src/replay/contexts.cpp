#include "replay/run.hpp"

namespace emm::replay {

bool Run::open(Lane& lane) {
  const Hidden hidden(*this);
  if (auto created = lane.create(stack_); !created) {
    fatal(created.error());
    return false;
  }
  lane.shared = &devices_[lane.device()];
  if (parallel_ && !lane.shared->shards) {
    lane.shared->shards = std::make_unique<AddressShards>(live_);
  }
  if (log_ != nullptr) lane.note_capacity();
  const auto& names = trace_.streams();
  for (std::size_t stream = 1; stream < names.size(); ++stream) {
    if (names[stream] == "per_thread") lane.set_per_thread(stream, parallel_ == nullptr);
  }
  return true;
}

void Run::initialize(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  Times times{.begin_ns = now(), .end_ns = 0};
  const auto done = lane->context().initialize();
  times.end_ns = now();
  const auto outcome = done ? Outcome::ok : outcome_of(done.error());
  record(event, outcome, times, 0, 0);
  settle(event, outcome, done ? nullptr : &done.error());
}

void Run::trim(const Event& event) {
  if (trace_.pool_count() != 1) return skip(event);
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  Times times{.begin_ns = now(), .end_ns = 0};
  const auto done = lane->context().memory_manager().trim(event.size);
  times.end_ns = now();
  if (options_.checks) measure_reserved(*lane);
  const auto outcome = done ? Outcome::ok : outcome_of(done.error());
  record(event, outcome, times, 0, 0);
  settle(event, outcome, done ? nullptr : &done.error());
}

void Run::get_memory_info(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  Times times{.begin_ns = now(), .end_ns = 0};
  const auto info = lane->context().get_memory_info();
  times.end_ns = now();
  const auto outcome = info ? Outcome::ok : outcome_of(info.error());
  record(event, outcome, times, 0, 0);
  settle(event, outcome, info ? nullptr : &info.error());
  if (!info) return;
  const auto& expect = trace_.detail(event).expect;
  if (info->free > info->total) {
    violation(
        log::Violation::Kind::unexpected,
        text::format("get_memory_info says that {} of {} bytes are free", info->free, info->total));
  }
  if (event.detail != 0 &&
      (info->free < expect.free_at_least || info->free > expect.free_at_most)) {
    violation(log::Violation::Kind::unexpected,
              text::format("get_memory_info says that {} bytes are free, expected {} to {}",
                           info->free, expect.free_at_least, expect.free_at_most));
  }
}

void Run::defer_cleanup(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const auto begin = now();
  lane->enter();
  record(event, Outcome::ok, {begin, now()}, 0, 0);
  settle(event, Outcome::ok, nullptr);
}

void Run::end_defer_cleanup(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const auto begin = now();
  lane->leave();
  record(event, Outcome::ok, {begin, now()}, 0, 0);
  settle(event, Outcome::ok, nullptr);
}

template <class Call>
void Run::ending_all(const Event& event, Call call) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  const auto slots = live_.by_id();
  const auto ends = [&](const auto& held) { return held.context == event.context && !held.ended; };
  if (options_.verify) {
    for (const auto slot : slots) {
      if (ends(live_[slot])) check_content(live_[slot]);
    }
    for (const auto& [id, host] : hosts_) {
      if (ends(host)) check_content(AllocId{id}, host);
    }
  }

  if (order_) {
    for (const auto slot : slots) {
      if (ends(live_[slot])) order_ending(live_[slot], {});
    }
  }
  Times times{.begin_ns = now(), .end_ns = 0};
  const Status done = call(*lane);
  times.end_ns = now();

  for (const auto slot : slots) {
    auto& live = live_[slot];
    if (!ends(live)) continue;
    const auto address = live.memory.device_pointer().value;
    live.ended = true;
    unplace(live);
    live_bytes_ -= live.size;
    --live_count_;
    record_ended(event.op, live.id, live.context, times, address, live.size, live.made_by);
  }
  for (auto& [id, host] : hosts_) {
    if (!ends(host)) continue;
    host.ended = true;
    host_bytes_ -= host.size;
    record_ended(event.op, AllocId{id}, host.context, times, host.shown, host.size, host.made_by);
  }
  if (index(event.context) >= reset_at_.size()) reset_at_.resize(lanes_.size());
  reset_at_[index(event.context)] = at_ + 1;
  if (order_) report_hazards();
  if (options_.checks && lane->open()) measure_reserved(*lane);
  const auto outcome = done ? Outcome::ok : outcome_of(done.error());
  record(event, outcome, times, 0, 0);
  settle(event, outcome, done ? nullptr : &done.error());
}

void Run::reset(const Event& event) {
  ending_all(event, [](Lane& lane) -> Status {
    lane.context().reset();
    return {};
  });
}

void Run::create_context(const Event& event) {
  const auto begin = now();
  if (lane(event.context) == nullptr) return;
  record(event, Outcome::ok, {begin, now()}, 0, 0);
  settle(event, Outcome::ok, nullptr);
}

void Run::destroy_context(const Event& event) {
  ending_all(event, [&](Lane& lane) {
    const bool share = std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& other) {
      return other.get() != &lane && other->open() && other->device() == lane.device();
    });
    if (!share) reserved_ -= std::exchange(lane.shared->held, 0);
    return lane.destroy(share);
  });
}

}  // namespace emm::replay
