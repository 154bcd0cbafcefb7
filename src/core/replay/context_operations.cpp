#include "replay/context_operations.hpp"

#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

namespace emm::replay {

using trace::Event;

void ContextOperations::initialize(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  Times times;
  const auto done = timed(core_, times, [&] { return context->context().initialize(); });
  core_.judge.record_and_judge(event, done, times);
}

void ContextOperations::trim(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  Times times;
  const auto done =
      timed(core_, times, [&] { return context->context().memory_manager().trim(event.size); });
  if (core_.state.options.checks) core_.accounts.measure_reserved(*context);
  core_.judge.record_and_judge(event, done, times);
}

void ContextOperations::get_memory_info(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  Times times;
  const auto info = timed(core_, times, [&] { return context->context().get_memory_info(); });
  core_.judge.record_and_judge(event, info, times);
  if (!info) return;
  if (info->free > info->total) {
    core_.judge.add_violation(
        log::Violation::Kind::unexpected,
        text::format("get_memory_info says that {} of {} bytes are free", info->free, info->total));
  }
  const auto& expect = core_.state.trace.detail(event).expect;
  if (event.detail != 0 &&
      (info->free < expect.free_at_least || info->free > expect.free_at_most)) {
    core_.judge.add_violation(
        log::Violation::Kind::unexpected,
        text::format("get_memory_info says that {} bytes are free, expected {} to {}", info->free,
                     expect.free_at_least, expect.free_at_most));
  }
}

void ContextOperations::defer_cleanup(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const auto begin = core_.now();
  context->defer_cleanup();
  core_.judge.record_and_judge(event, Status(), {begin, core_.now()});
}

void ContextOperations::end_defer_cleanup(const Event& event) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  const auto begin = core_.now();
  context->end_defer_cleanup();
  core_.judge.record_and_judge(event, Status(), {begin, core_.now()});
}

template <class Call>
void ContextOperations::end_all(const Event& event, Call call) {
  auto* context = core_.contexts.use(event.context);
  if (context == nullptr) return;
  auto& held = core_.held;
  auto& accounts = core_.accounts;
  const auto slots = held.live.by_id();
  const auto ends = [&](const auto& one) { return one.context == event.context && !one.ended; };
  if (core_.state.options.verify) {
    for (const auto slot : slots) {
      if (ends(held.live[slot])) core_.checks.check_content(held.live[slot]);
    }
    for (const auto& [id, host] : held.hosts) {
      if (ends(host)) core_.checks.check_content(AllocId{id}, host);
    }
  }

  if (core_.checker) {
    for (const auto slot : slots) {
      if (ends(held.live[slot])) core_.order.order_before_free(held.live[slot], {});
    }
  }
  Times times;
  const Status done = timed(core_, times, [&] { return call(*context); });

  for (const auto slot : slots) {
    auto& live = held.live[slot];
    if (!ends(live)) continue;
    const auto address = live.memory.device_pointer().value;
    live.ended = true;
    core_.checks.erase_address(live);
    accounts.remove_device_memory(live.size);
    core_.log.add_ended(event.op, live.id, live.context, times, address, live.size, live.made_by);
  }
  for (auto& [id, host] : held.hosts) {
    if (!ends(host)) continue;
    host.ended = true;
    accounts.host_bytes -= host.size;
    core_.log.add_ended(event.op, AllocId{id}, host.context, times, host.log_address, host.size,
                        host.made_by);
  }
  if (index(event.context) >= held.reset_at.size()) held.reset_at.resize(core_.contexts.size());
  held.reset_at[index(event.context)] = core_.state.at + 1;
  if (core_.checker) core_.order.report_hazards();
  if (core_.state.options.checks && context->open()) accounts.measure_reserved(*context);
  core_.judge.record_and_judge(event, done, times);
}

void ContextOperations::reset(const Event& event) {
  end_all(event, [](ContextState& context) -> Status {
    context.context().reset();
    return {};
  });
}

void ContextOperations::create(const Event& event) {
  const auto begin = core_.now();
  if (core_.contexts.use(event.context) == nullptr) return;
  core_.judge.record_and_judge(event, Status(), {begin, core_.now()});
}

void ContextOperations::destroy(const Event& event) {
  end_all(event, [&](ContextState& context) {
    const bool share = core_.contexts.shares_device(context);
    if (!share) core_.accounts.reserved_bytes -= std::exchange(context.device_state->held, 0);
    return context.destroy(share);
  });
}

}  // namespace emm::replay
