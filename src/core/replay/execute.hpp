#pragma once

#include <cstdint>
#include <utility>

#include "replay/operations.hpp"
#include "replay/replay_core.hpp"

/// Executes events. Allocations and frees of device memory are here and inlined; the other
/// operations are in Operations.
///
/// The `Access` is what differs between one thread and many: which accounts count, what guards the
/// address map and the log, and whether an event waits for others. OneThread (one_thread.hpp)
/// returns constants where it can, so that its loop does not test for features that are off. Worker
/// (worker.hpp) is one of many threads. It takes a lock for everything rare, and shows an
/// allocation to other threads only when the allocation is complete.
///
/// An Access has:
///   core(), operations()            what all threads share
///   checks(), timed(), latency()    what to do beside the operations
///   watched()                       is there a log, or is content or stream order checked?
///   await(event)                    waits for the ids and records that it needs; false: run ends
///   rarely(f)                       calls f while no other thread is in rarely()
///   executed(event)                 an event of Operations is done
///   context(id), stream(...)        the context and the stream; OneThread makes them at first use
///   now(), cache()                  the clock, and the cache of the LiveSet
///   add_alloc_time, add_free_time, allocated, freed, succeeded_as_recorded, measure,
///   allocation_done                 the accounts
///   kShowsAtOnce                    may an allocation be seen before it was checked?
///   insert_address, erase_address   the address map of a device
///   record_place(), record(...)     the log
namespace emm::replay {

/// Inlines the warm functions into the loop of each Access. As calls they cost 6 % more
/// instructions with a manager that does nothing.
#define EMM_WARM [[gnu::always_inline]] inline

template <class Access>
void judge_success(Access& access, const trace::Event& event) {
  if (expects_success(event)) {  // costs no lock
    if (event.recorded() == trace::Outcome::ok) access.succeeded_as_recorded();
    return;
  }
  access.rarely([&] { access.core().judge.judge(event, trace::Outcome::ok, nullptr); });
}

template <class Access>
EMM_WARM void free_held(Access& access, const trace::Event& event, std::uint32_t slot) {
  auto& core = access.core();
  auto& live = core.held.live[slot];
  auto& context = core.contexts[live.context];
  const auto address = live.memory.device_pointer();
  const auto size = live.size;
  const auto made_by = live.made_by;
  if (access.watched() && core.state.options.verify) {
    access.rarely([&] { core.checks.check_content(live); });
  }
  // The id must end before the range is erased and before the manager gets the memory back. If
  // another thread gets these addresses meanwhile and finds the old range in the map, it sees that
  // its id has ended.
  core.held.live.hide(slot);
  if (access.checks() && live.placed) access.erase_address(context, live);
  const auto stream = access.stream(context, event);
  if (access.watched() && core.checker) {
    access.rarely([&] { core.order.order_before_free(live, stream); });
  }
  const auto place = access.record_place();  // before the manager can hand the memory out again
  Times times;
  if (access.timed()) times.begin_ns = access.now();
  const auto freed = live.memory.free(stream);
  if (access.timed()) times.end_ns = access.now();
  if (access.latency()) access.add_free_time(times.end_ns - times.begin_ns);
  core.held.live.reuse(slot, access.cache());
  access.freed(size, static_cast<bool>(freed));
  if (access.checks()) access.measure(context);
  if (access.watched()) {
    access.record(place, event, outcome_of(freed), times, address.value, size, made_by);
    if (core.checker && core.order.has_hazards()) {
      access.rarely([&] { core.order.report_hazards(); });
    }
  }
  if (!freed) [[unlikely]] {
    access.rarely([&] { core.judge.judge(event, outcome_of(freed), &freed.error()); });
  } else if (event.outcomes != 0) [[unlikely]] {
    judge_success(access, event);
  }
}

template <class Access>
EMM_WARM void free(Access& access, const trace::Event& event) {
  auto& live = access.core().held.live;
  const auto slot = live.slot(event.id);
  if (slot == LiveSet::kNone) [[unlikely]] {
    return access.rarely([&] { access.operations().free_other(event); });
  }
  if (live[slot].ended) [[unlikely]] {
    return access.rarely([&] { access.operations().host.free_ended(event, slot); });
  }
  free_held(access, event, slot);
}

/// Frees the memory that `event` made at once, since the recorded program never held it.
template <class Access>
[[gnu::noinline]] void free_at_once(Access& access, const trace::Event& event, std::uint32_t slot) {
  free_held(access, free_of(event), slot);
}

/// Puts memory that `event` made into an entry. Other threads see it only after LiveSet::show().
template <class Access>
EMM_WARM std::uint32_t hold(Access& access, const trace::Event& event, MemoryPointer&& memory) {
  auto& set = access.core().held.live;
  const auto slot = set.add(event.id, access.cache());
  auto& live = set[slot];
  live.memory = std::move(memory);
  live.size = event.size;
  live.context = event.context;
  live.stream = event.stream;
  live.made_on = event.thread;
  live.made_by = event.op;
  live.ended = false;
  live.placed = false;
  return slot;
}

template <class Access>
EMM_WARM void check_allocation(Access& access, const trace::Event& event, ContextState& context,
                               std::uint32_t slot) {
  auto& core = access.core();
  auto& live = core.held.live[slot];
  if (MemoryChecks::has_address(live)) [[likely]] {
    const auto other = access.insert_address(context, live);
    live.placed = !other;
    if (other) [[unlikely]] {
      access.rarely([&] { core.checks.report_overlap(live, AllocId{*other}); });
    }
  }
  if (MemoryChecks::is_suspect(event, live)) [[unlikely]] {
    access.rarely([&] { core.checks.check(event, slot); });
  }
  access.measure(context);
}

/// Allocates with `make`, which calls the manager.
template <class Access, class Make>
EMM_WARM void allocate(Access& access, const trace::Event& event, Make make) {
  auto& core = access.core();
  auto* context = access.context(event.context);
  if (context == nullptr) [[unlikely]]
    return;
  const auto stream = access.stream(*context, event);
  Times times;
  if (access.timed()) times.begin_ns = access.now();
  Result<MemoryPointer> memory = make(*context, stream);
  if (access.timed()) times.end_ns = access.now();
  if (access.latency()) access.add_alloc_time(times.end_ns - times.begin_ns);
  if (!memory) [[unlikely]] {
    access.rarely([&] { core.judge.judge_refusal(event, memory.error(), times); });
    return access.request_failed(event.id);
  }
  const auto slot = hold(access, event, *std::move(memory));
  auto& live = core.held.live[slot];
  if constexpr (Access::kShowsAtOnce) core.held.live.show(slot);
  access.allocated(event.size);
  if (access.checks()) check_allocation(access, event, *context, slot);
  if (access.watched()) {
    if (core.checker) {
      core.checker->allocated(context->device(), static_cast<std::uint32_t>(live.id),
                              live.memory.device_pointer(), live.size, stream);
      if (core.order.has_hazards()) access.rarely([&] { core.order.report_hazards(); });
    }
    if (core.state.options.verify) access.rarely([&] { core.checks.fill(live, stream); });
    access.record(access.record_place(), event, trace::Outcome::ok, times,
                  live.memory.device_pointer().value, event.size, trace::Op::memalloc);
  }
  bool is_held = true;
  if (event.outcomes != 0) [[unlikely]] {
    judge_success(access, event);
    is_held = !was_never_held(event);
    if (!is_held) free_at_once(access, event, slot);
  }
  if constexpr (!Access::kShowsAtOnce) {
    if (is_held) core.held.live.show(slot);  // from here on another thread may free it
  }
  access.allocation_done();
}

template <class Access>
[[gnu::noinline]] void allocate_managed(Access& access, const trace::Event& event) {
  allocate(access, event, [&](ContextState& context, StreamHandle) -> Result<MemoryPointer> {
    const bool host = event.has(trace::event_flag::attach_host);
    auto memory = context.context().memallocmanaged(event.size,
                                                    host ? AttachFlags::host : AttachFlags::global);
    if (!memory) return std::move(memory).error();
    return std::move(memory->memory());
  });
}

/// False if the run ends before the event is executed.
template <class Access>
EMM_WARM bool execute(Access& access, const trace::Event& event) {
  using trace::Op;
  const bool elsewhere =
      event.has(trace::event_flag::backing) ||
      (event.detail != 0 && access.core().state.trace.detail(event).process != 0);
  if (!elsewhere) [[likely]] {
    switch (event.op) {
      case Op::memalloc:
        allocate(access, event, [&](ContextState& context, StreamHandle stream) {
          return context.context().memalloc(event.size, stream);
        });
        return true;
      case Op::free:
        if (!access.await(event)) return false;
        free(access, event);
        return true;
      case Op::memallocmanaged:
        allocate_managed(access, event);
        return true;
      case Op::thread_begin:
      case Op::thread_end:
      case Op::mark:
        return true;
      default:
        break;
    }
  }
  if (!access.await(event)) return false;
  access.rarely([&] { access.operations().execute(event); });
  access.executed(event);
  return true;
}

#undef EMM_WARM

}  // namespace emm::replay
