#include "replay/run.hpp"

namespace emm::replay {

/// The one place that says what an operation of a trace does.
template <unsigned F>
inline void Run::dispatch(const Event& event) {
  if (event.has(trace::event_flag::backing)) [[unlikely]]
    return backing(event);
  if (event.detail != 0 && trace_.detail(event).process != 0 && elsewhere(event)) [[unlikely]]
    return;
  switch (event.op) {
    case Op::memalloc:
      return memalloc<F>(event);
    case Op::free:
      return free<F>(event);
    case Op::memallocmanaged:
      return memallocmanaged<F>(event);
    case Op::memhostalloc:
      return memhostalloc(event);
    case Op::mempin:
      return mempin(event);
    case Op::initialize:
      return initialize(event);
    case Op::get_ipc_handle:
      return get_ipc_handle(event);
    case Op::open_ipc_handle:
      return open_ipc_handle(event);
    case Op::close_ipc_handle:
      return close_ipc_handle(event);
    case Op::get_memory_info:
      return get_memory_info(event);
    case Op::defer_cleanup:
      return defer_cleanup(event);
    case Op::end_defer_cleanup:
      return end_defer_cleanup(event);
    case Op::reset:
      return reset(event);
    case Op::context_create:
      return create_context(event);
    case Op::context_destroy:
      return destroy_context(event);
    case Op::stream_create:
      return stream_create(event);
    case Op::stream_destroy:
      return stream_destroy(event);
    case Op::flush:
      return backing(event);
    case Op::gap:
      ++gaps_;
      return;
    case Op::device_sync:
      return device_sync(event);
    case Op::stream_sync:
      return stream_sync(event);
    case Op::event_record:
      return event_record(event);
    case Op::stream_wait:
      return stream_wait(event);
    case Op::event_sync:
      return event_sync(event);
    case Op::use:
      return use(event);
    case Op::record_stream:
      return record_stream(event);
    case Op::pool_destroy:
    case Op::pool_trim:
      return trim(event);
    case Op::pool_create:
      return skip(event);
    case Op::thread_begin:
    case Op::thread_end:
    case Op::define:
    case Op::mark:
    case Op::end:
    case Op::extension:
      return;  // about the trace, not the manager
  }
}

template <unsigned F>
inline void Run::memalloc(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) [[unlikely]]
    return;
  const auto stream = lane->stream(index(event.stream), event.thread);
  constexpr bool kTimed = (F & (feature::times | feature::watched)) != 0;
  Times times;
  if constexpr (kTimed) times.begin_ns = now();
  auto memory = lane->context().memalloc(event.size, stream);
  if constexpr (kTimed) times.end_ns = now();
  made<F>(event, *lane, memory, times);
}

template <unsigned F>
void Run::memallocmanaged(const Event& event) {
  auto* lane = this->lane(event.context);
  if (lane == nullptr) return;
  Times times{.begin_ns = now(), .end_ns = 0};
  auto memory = managed(event, *lane);
  times.end_ns = now();
  made<F>(event, *lane, memory, times);
}

Result<MemoryPointer> Run::managed(const Event& event, Lane& lane) {
  const auto attach =
      event.has(trace::event_flag::attach_host) ? AttachFlags::host : AttachFlags::global;
  auto memory = lane.context().memallocmanaged(event.size, attach);
  if (!memory) return std::move(memory).error();
  return std::move(memory->memory());
}

template <unsigned F>
inline void Run::made(const Event& event, Lane& lane, Result<MemoryPointer>& memory, Times times) {
  if constexpr ((F & feature::times) != 0) alloc_times_.add(times.end_ns - times.begin_ns);
  if (!memory) [[unlikely]]
    return refused(event, memory.error(), times);
  const auto slot = hold(event, *std::move(memory), live_.cache());
  live_.show(slot);
  auto& live = live_[slot];
  ++pass_.allocs;
  ++live_count_;
  live_bytes_ += event.size;
  if (live_bytes_ > pass_.peak_live_bytes) pass_.peak_live_bytes = live_bytes_;
  if (const auto requested = requested_bytes(live_bytes_); requested > pass_.peak_requested_bytes) {
    pass_.peak_requested_bytes = requested;
  }
  if constexpr ((F & feature::checks) != 0) {
    if (has_place(live)) [[likely]] {
      const auto address = live.memory.device_pointer().value;
      const auto number = static_cast<std::uint32_t>(index(event.id));
      const auto other = lane.shared->shards
                             ? lane.shared->shards->insert(address, event.size, number)
                             : lane.shared->addresses.insert(address, event.size, number);
      if (other) [[unlikely]] {
        overlap(live, AllocId{*other});
      } else {
        live.placed = true;
      }
    }
    if (stands_out(event, live)) [[unlikely]]
      check_made(event, slot);
    measure_reserved(lane);
    if (is_told()) [[unlikely]]
      hear(pass_);
  }
  if constexpr ((F & feature::watched) != 0) {
    if (order_) order_allocated(live);
    fill(live, lane.stream(index(live.stream), live.made_on));
    record(event, Outcome::ok, times, live.memory.device_pointer().value, event.size);
  }
  if (event.outcomes != 0) [[unlikely]] {
    settle(event, Outcome::ok, nullptr);
    if (nobody_holds(event)) free<F>(free_of(event));
  }
}

template <unsigned F>
inline void Run::free(const Event& event) {
  const auto slot = live_.slot(event.id);
  if (slot == LiveSet::kNone) [[unlikely]]
    return free_other(event);
  auto& live = live_[slot];
  if (live.ended) [[unlikely]]
    return free_ended(event, slot);
  auto& lane = *lanes_[index(live.context)];
  const auto address = live.memory.device_pointer();
  const auto size = live.size;
  const auto made_by = live.made_by;
  if constexpr ((F & feature::watched) != 0) check_content(live);
  if constexpr ((F & feature::checks) != 0) {
    unplace(live);
  }
  const auto stream = lane.stream(index(event.stream), event.thread);
  if constexpr ((F & feature::watched) != 0) {
    if (order_) order_ending(live, stream);
  }
  constexpr bool kTimed = (F & (feature::times | feature::watched)) != 0;
  Times times;
  if constexpr (kTimed) times.begin_ns = now();
  const auto freed = live.memory.free(stream);
  if constexpr (kTimed) times.end_ns = now();
  if constexpr ((F & feature::times) != 0) free_times_.add(times.end_ns - times.begin_ns);
  live_.forget(slot, live_.cache());
  --live_count_;
  live_bytes_ -= size;
  if (freed) [[likely]]
    ++pass_.frees;
  if constexpr ((F & feature::checks) != 0) {
    measure_reserved(lane);
    if (is_told()) [[unlikely]]
      hear(pass_);
  }
  const auto outcome = freed ? Outcome::ok : outcome_of(freed.error());
  if constexpr ((F & feature::watched) != 0) {
    record(event, outcome, times, address.value, size, made_by);
    if (order_) report_hazards();
  }
  if (event.outcomes != 0 || !freed) [[unlikely]]
    settle(event, outcome, freed ? nullptr : &freed.error());
}

template <unsigned F>
std::size_t Run::walk_with(std::size_t begin, std::size_t end) {
  static constexpr std::atomic<bool> kNever{false};
  const auto& interrupted = options_.interrupted != nullptr ? *options_.interrupted : kNever;
  for (at_ = begin; at_ < end; ++at_) {
    if constexpr ((F & feature::watched) != 0) {
      if (pace_ && !parallel_) waited_ns_ += pace_->wait(trace_[at_].time_ns, lateness_);
    }
    dispatch<F>(trace_[at_]);
    if (stop_) [[unlikely]]
      return at_ + 1;
    if (interrupted.load(std::memory_order_relaxed)) [[unlikely]] {
      summary_.interrupted = true;
      stop_ = true;
      return at_ + 1;
    }
  }
  return end;
}

void Run::serve_rare(const Event& event) {
  using namespace feature;
  dispatch<checks | times | watched>(event);
}

std::size_t Run::walk(std::size_t begin, std::size_t end) {
  using namespace feature;
  const bool watch = log_ != nullptr || options_.verify || order_ || pace_;
  switch ((options_.checks ? checks : 0) | (options_.latency ? times : 0) | (watch ? watched : 0)) {
    case 0:
      return walk_with<0>(begin, end);
    case checks:
      return walk_with<checks>(begin, end);
    case times:
      return walk_with<times>(begin, end);
    case checks | times:
      return walk_with<checks | times>(begin, end);
    case watched:
      return walk_with<watched>(begin, end);
    case checks | watched:
      return walk_with<checks | watched>(begin, end);
    case times | watched:
      return walk_with<times | watched>(begin, end);
    default:
      return walk_with<checks | times | watched>(begin, end);
  }
}

}  // namespace emm::replay
