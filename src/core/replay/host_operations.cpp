#include "replay/host_operations.hpp"

namespace emm::replay {

using trace::Event;
using trace::Outcome;

void HostOperations::memhostalloc(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  namespace flag = trace::event_flag;
  const HostAllocFlags flags{.mapped = event.has(flag::mapped),
                             .portable = event.has(flag::portable),
                             .wc = event.has(flag::wc)};
  Times times;
  auto memory =
      timed(core_, times, [&] { return context->context().memhostalloc(event.size, flags); });
  add(event, *context, std::move(memory), false, times);
}

void HostOperations::mempin(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  namespace flag = trace::event_flag;
  const HostRegisterFlags flags{.mapped = event.has(flag::mapped),
                                .portable = event.has(flag::portable),
                                .read_only = event.has(flag::read_only)};
  auto place = buffers_.place(event);
  if (!place) {
    return add(event, *context, std::move(place).error(), false, {core_.now(), core_.now()});
  }
  Times times;
  auto memory = timed(core_, times,
                      [&] { return context->context().mempin(place->range, flags, place->owner); });
  add(event, *context, std::move(memory), place->shared, times);
}

void HostOperations::add(const Event& event, ContextState& context, Result<HostMemory> memory,
                         bool shared, Times times) {
  const auto& options = core_.state.options;
  auto& accounts = core_.accounts;
  if (options.latency) accounts.alloc_times.add(times.end_ns - times.begin_ns);
  if (!memory) return core_.judge.judge_refusal(event, memory.error(), times);
  const auto range = range_of(*memory);
  const auto address = range.pointer == nullptr ? 0 : context.driver().log_address(range.pointer);
  const auto [at, added] =
      core_.held.hosts.emplace(index(event.id), HostAllocation{.memory = std::move(*memory),
                                                               .size = event.size,
                                                               .log_address = address,
                                                               .made_by = event.op,
                                                               .context = event.context});
  EMM_ASSERT(added);
  auto& host = at->second;
  ++accounts.pass.allocs;
  accounts.host_bytes += event.size;
  if (accounts.host_bytes > accounts.pass.peak_host_bytes) {
    accounts.pass.peak_host_bytes = accounts.host_bytes;
  }
  if (options.checks) {
    core_.checks.check(event, host);
    accounts.measure_reserved(context);
  }
  if (options.verify && !shared && range.pointer != nullptr && range.size == event.size) {
    fill_host(range.pointer, event.size, Pattern(event.id));
    host.filled = true;
  }
  core_.log.add(event, Outcome::ok, times, address, event.size);
  core_.judge.judge(event, Outcome::ok, nullptr);
  if (was_never_held(event)) free(free_of(event), at);
}

bool HostOperations::free(const Event& event) {
  const auto host = core_.held.hosts.find(static_cast<std::uint32_t>(event.id));
  if (host == core_.held.hosts.end()) return false;
  free(event, host);
  return true;
}

void HostOperations::free(const Event& event, Hosts::iterator at) {
  auto& host = at->second;
  auto& context = core_.contexts[host.context];
  auto& hosts = core_.held.hosts;
  const auto size = host.size;
  const auto made_by = host.made_by;
  const auto address = host.log_address;
  const bool late = host.ended;
  Status freed;
  Times times;
  if (late) {
    times.begin_ns = core_.now();
    hosts.erase(at);  // its finalizer runs, and must do nothing
    times.end_ns = core_.now();
  } else {
    if (core_.state.options.verify) core_.checks.check_content(event.id, host);
    freed = timed(core_, times, [&] {
      return std::visit([](auto& memory) { return memory.free(); }, host.memory);
    });
    hosts.erase(at);
    core_.accounts.host_bytes -= size;
  }
  if (core_.state.options.latency) core_.accounts.free_times.add(times.end_ns - times.begin_ns);
  if (freed) ++core_.accounts.pass.frees;
  if (core_.state.options.checks && context.open()) core_.accounts.measure_reserved(context);
  const auto outcome = outcome_of(freed);
  core_.log.add(event, outcome, times, address, size, made_by, late);
  core_.judge.judge(event, outcome, error_of(freed));
}

void HostOperations::free_ended(const Event& event, std::uint32_t slot) {
  auto& live = core_.held.live;
  auto& context = core_.contexts[live[slot].context];
  const auto address = live[slot].memory.device_pointer().value;
  const auto size = live[slot].size;
  const auto made_by = live[slot].made_by;
  const bool checked = core_.state.options.checks && context.open();
  const auto held = checked ? context.driver().held_bytes() : 0;
  Times times{.begin_ns = core_.now(), .end_ns = 0};
  live.end(slot, live.cache());
  times.end_ns = core_.now();
  ++core_.accounts.pass.frees;
  if (checked) {
    if (const auto left = context.driver().held_bytes(); left < held) {
      core_.judge.add_violation(
          log::Violation::Kind::balance,
          text::format("the free of {}, which a reset had ended, released {} bytes to the device",
                       core_.state.trace.name(event.id), held - left));
    }
    core_.accounts.measure_reserved(context);
  }
  core_.log.add(event, Outcome::ok, times, address, size, made_by, true);
  core_.judge.judge(event, Outcome::ok, nullptr);
}

}  // namespace emm::replay
