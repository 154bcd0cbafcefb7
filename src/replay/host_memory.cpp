#include "replay/run.hpp"

namespace emm::replay {

void Run::memhostalloc(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  namespace flag = trace::event_flag;
  const HostAllocFlags flags{.mapped = event.has(flag::mapped),
                             .portable = event.has(flag::portable),
                             .wc = event.has(flag::wc)};
  Times times{.begin_ns = now(), .end_ns = 0};
  auto memory = lane->context().memhostalloc(event.size, flags);
  times.end_ns = now();
  made_host(event, *lane, std::move(memory), false, times);
}

void Run::mempin(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  namespace flag = trace::event_flag;
  const HostRegisterFlags flags{.mapped = event.has(flag::mapped),
                                .portable = event.has(flag::portable),
                                .read_only = event.has(flag::read_only)};
  auto place = host_buffers_.place(event);
  if (!place) return made_host(event, *lane, std::move(place).error(), false, {now(), now()});
  Times times{.begin_ns = now(), .end_ns = 0};
  auto memory = lane->context().mempin(place->range, flags, place->owner);
  times.end_ns = now();
  made_host(event, *lane, std::move(memory), place->shared, times);
}

void Run::made_host(const Event& event, Lane& lane, Result<HostMemory> memory, bool shared,
                    Times times) {
  if (options_.latency) alloc_times_.add(times.end_ns - times.begin_ns);
  if (!memory) return refused(event, memory.error(), times);
  const auto range = range_of(*memory);
  const auto shown = range.pointer == nullptr ? 0 : lane.driver().log_address(range.pointer);
  const auto [at, added] = hosts_.emplace(index(event.id), Host{.memory = std::move(*memory),
                                                                .size = event.size,
                                                                .shown = shown,
                                                                .made_by = event.op,
                                                                .context = event.context});
  EMM_ASSERT(added);
  auto& host = at->second;
  ++pass_.allocs;
  host_bytes_ += event.size;
  if (host_bytes_ > pass_.peak_host_bytes) pass_.peak_host_bytes = host_bytes_;
  if (options_.checks) {
    check_host(event, host);
    measure_reserved(lane);
  }
  if (options_.verify && !shared && range.pointer != nullptr && range.size == event.size) {
    fill_host(range.pointer, event.size, Pattern(event.id));
    host.filled = true;
  }
  record(event, Outcome::ok, times, shown, event.size);
  settle(event, Outcome::ok, nullptr);
  if (nobody_holds(event)) free_host(free_of(event), at);
}

void Run::free_host(const Event& event, std::map<std::uint32_t, Host>::iterator at) {
  auto& host = at->second;
  auto& lane = *lanes_[index(host.context)];
  const auto size = host.size;
  const auto made_by = host.made_by;
  const auto shown = host.shown;
  const bool late = host.ended;
  Status freed;
  Times times;
  if (late) {
    times.begin_ns = now();
    hosts_.erase(at);  // its finalizer runs, and must do nothing
    times.end_ns = now();
  } else {
    if (options_.verify) check_content(event.id, host);
    times.begin_ns = now();
    freed = std::visit([](auto& memory) { return memory.free(); }, host.memory);
    times.end_ns = now();
    hosts_.erase(at);
    host_bytes_ -= size;
  }
  if (options_.latency) free_times_.add(times.end_ns - times.begin_ns);
  if (freed) ++pass_.frees;
  if (options_.checks && lane.open()) measure_reserved(lane);
  const auto outcome = freed ? Outcome::ok : outcome_of(freed.error());
  record(event, outcome, times, shown, size, made_by, late);
  settle(event, outcome, freed ? nullptr : &freed.error());
}

void Run::free_ended(const Event& event, std::uint32_t slot) {
  auto& lane = *lanes_[index(live_[slot].context)];
  const auto address = live_[slot].memory.device_pointer().value;
  const auto size = live_[slot].size;
  const auto made_by = live_[slot].made_by;
  const bool watch = options_.checks && lane.open();
  const auto held = watch ? lane.driver().held_bytes() : 0;
  Times times{.begin_ns = now(), .end_ns = 0};
  live_.end(slot, live_.cache());  // its finalizer runs, and must do nothing
  times.end_ns = now();
  ++pass_.frees;
  if (watch) {
    if (const auto left = lane.driver().held_bytes(); left < held) {
      violation(
          log::Violation::Kind::balance,
          text::format("the free of {}, which a reset had ended, gave {} bytes back to the device",
                       trace_.name(event.id), held - left));
    }
    measure_reserved(lane);
  }
  record(event, Outcome::ok, times, address, size, made_by, true);
  settle(event, Outcome::ok, nullptr);
}

void Run::free_other(const Event& event) {
  if (const auto host = hosts_.find(static_cast<std::uint32_t>(event.id)); host != hosts_.end()) {
    return free_host(event, host);
  }
  if (imports_.contains(static_cast<std::uint32_t>(event.id))) return close_ipc_handle(event);
  unmade(event);
}

}  // namespace emm::replay
