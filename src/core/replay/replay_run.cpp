#include "replay/replay_run.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"
#include "replay/one_thread.hpp"

namespace emm::replay {
namespace {

using trace::Op;

constexpr std::size_t kChunk = 1024;       ///< Events between two calls of ReplayOptions::progress.
constexpr std::size_t kThreadsMax = 1024;  // of a trace; each becomes one of the process

}  // namespace

Result<log::Summary> ReplayRun::run() {
  auto& state = core_.state;
  const CurrentEvent current(state.at);
  describe_run();
  core_.judge.keep(KeptHeader::Phase::running);
  if (state.has_threads) {
    if (auto begun = begin_threads(); !begun) return begun.error();
  }
  const auto passes = std::max(state.options.repeat, 1u);
  for (state.pass = 0; state.pass < passes && !state.stop; ++state.pass) run_pass();
  if (state.fatal) return *std::move(state.fatal);
  finish();
  return std::move(core_.judge.summary);
}

Status ReplayRun::begin_threads() {
  const auto threads = core_.state.trace.threads().size();
  if (threads > kThreadsMax) {
    return fail(Errc::usage, "--threads: the trace has {} threads: expected at most {}", threads,
                kThreadsMax);
  }
  core_.log.begin_threads(threads);
  parallel_ = std::make_unique<Parallel>(core_, operations_);
  return parallel_->start();
}

void ReplayRun::describe_run() {
  auto& summary = core_.judge.summary;
  summary.trace = core_.state.trace.source();
  summary.manager = stack_.describe_manager();
  summary.device = stack_.describe_device();
  summary.clock = core_.clock.clock().kind();
}

std::size_t ReplayRun::end_of_preexisting(std::size_t from) {
  const auto& trace = core_.state.trace;
  auto found = from;
  const auto end =
      trace.is_window() ? std::min(trace.size(), from + trace.window_events() / 2) : trace.size();
  for (auto at = from; at < end; ++at) {
    if ((at - from) % kChunk == 0 && !need(from, std::min(at + kChunk, end))) return from;
    const auto& event = trace[at];
    if (event.has(trace::event_flag::preexisting)) {
      found = at + 1;
    } else if (event.op == Op::memalloc || event.op == Op::free) {
      break;
    }
  }
  return found;
}

bool ReplayRun::need(std::size_t begin, std::size_t end) {
  auto& state = core_.state;
  if (!state.options.need) return true;
  core_.judge.judge_reports(core_.accounts.pass);  // of events that need() may drop
  if (auto there = state.options.need(begin, end); !there) state.end_with(there.error());
  return !state.stop;
}

std::size_t ReplayRun::follow_pools(std::size_t at) {
  const auto& [device, steps, pools, requests, delays] = core_.state.trace.pool_steps();
  if (pool_step_ == steps.size()) return core_.state.trace.size();
  for (; pool_step_ < steps.size() && steps[pool_step_].before <= at; ++pool_step_) {
    for (std::size_t i = 0; i < core_.contexts.size(); ++i) {
      if (core_.state.trace.contexts()[i].device != device) continue;
      const auto id = static_cast<ContextId>(i);
      auto* const context = core_.contexts.use(id);
      if (context != nullptr) follow(steps[pool_step_], id, context->context().memory_manager());
    }
  }
  return pool_step_ < steps.size() ? steps[pool_step_].before : core_.state.trace.size();
}

void ReplayRun::follow(const trace::PoolStep& step, ContextId in, MemoryManager& manager) {
  using Kind = trace::PoolStep::Kind;
  if (step.kind == Kind::delay) {
    if (!need(step.before, step.before + 1)) return;
    const auto& held = core_.held.live;
    const auto slot = held.slot(core_.state.trace[step.before].id);
    if (slot == LiveSet::kNone || held[slot].ended || held[slot].context != in) return;
    const bool delays = manager.delay_free(held[slot].memory.device_pointer(), step.free);
    delayed_frees_ += delays && core_.state.pass == 0 ? 1 : 0;
  } else if (step.kind == Kind::complete) {
    manager.complete_free(step.free);
  } else if (step.kind == Kind::use) {
    follows_pools_ = manager.use_pool(step.pool) || follows_pools_;
  } else if (!follows_pools_) {
    return;
  } else if (step.kind == Kind::release_idle) {
    if (auto done = manager.trim(0); !done)
      core_.contexts.reports().add_failed_free(done.error(), core_.state.at, false);
  } else {
    manager.end_pool(step.pool, step.kind == Kind::drop);
  }
}

void ReplayRun::complete_frees() {
  if (delayed_frees_ == 0) return;
  for (const auto& step : core_.state.trace.pool_steps().steps) {
    if (step.kind != trace::PoolStep::Kind::delay) continue;
    core_.contexts.for_each_open(
        [&](ContextState& one) { one.context().memory_manager().complete_free(step.free); });
  }
}

void ReplayRun::add_pool_notes() {
  const auto& [device, steps, pools, requests, delays] = core_.state.trace.pool_steps();
  auto& notes = core_.judge.summary.notes;
  if (delayed_frees_ != 0) {
    notes.push_back(text::format(
        "{} frees waited for other streams, each until the recording says that it had completed",
        text::grouped(delayed_frees_)));
  } else if (delays != 0) {
    notes.push_back(text::format(
        "{} frees waited for other streams when this was recorded: this manager cannot be told "
        "how long, and took them at once",
        text::grouped(delays)));
  }
  if (requests == 0) return;
  if (follows_pools_) {
    notes.push_back(text::format("{} requests were served from {} private pools, as recorded",
                                 text::grouped(requests), pools));
  } else {
    notes.push_back(
        text::format("{} requests are of {} private pools, of graphs or MemPools: "
                     "this manager has none, and served them like all others",
                     text::grouped(requests), pools));
  }
}

std::size_t ReplayRun::execute(std::size_t done, std::size_t end) {
  auto& state = core_.state;
  if (core_.pace && done < end) core_.pace->begin(state.trace[done].time_ns);
  if (parallel_ && done < end && !state.stop) {
    while (done < end && !state.stop) {
      // The threads are stopped while the managers get the pool steps.
      const auto next_step = follow_pools(done);
      if (!state.stop) done = parallel_->execute_range(done, std::min(end, next_step));
    }
    if (state.pass == 0) core_.accounts.add_thread_times();
  }
  const auto& options = state.options;
  const auto total = std::uint64_t{state.trace.size()} * std::max(options.repeat, 1u);
  const bool first = state.pass == 0;
  auto& course = core_.judge.summary.course;
  const auto size = state.trace.size();
  const auto points = std::min(size, log::Summary::kCoursePoints);
  if (first && !parallel_) course.resize(points);
  std::size_t next_step = 0;
  while (!parallel_ && done < end && !state.stop) {
    const auto point = done * points / size;
    const auto part_end = ((point + 1) * size + points - 1) / points;
    if (done >= next_step) next_step = follow_pools(done);
    if (state.stop) break;
    const auto chunk_end = std::min({end, done + kChunk, part_end, next_step});
    if (!need(done, chunk_end)) break;
    done = execute_range(core_, operations_, done, chunk_end);
    if (first) {
      const auto part = core_.accounts.end_part();
      course[point].live = std::max(course[point].live, part.live);
      course[point].reserved = std::max(course[point].reserved, part.reserved);
    }
    if (options.progress) {
      options.progress(std::uint64_t{state.trace.size()} * state.pass + done, total);
    }
  }
  return done;
}

void ReplayRun::measure_pass(std::size_t timed, std::uint64_t model_elapsed_ns) {
  auto& pass = core_.accounts.pass;
  const auto events = static_cast<double>(timed);
  const auto working_ns = pass.elapsed_ns - std::min(pass.elapsed_ns, core_.accounts.waited_ns);
  pass.ns_per_event = timed == 0 ? 0 : static_cast<double>(working_ns) / events;
  if (!core_.clock.has_model()) return;
  pass.simulated_ns = model_elapsed_ns;
  pass.simulated_ns_per_event = timed == 0 ? 0 : static_cast<double>(model_elapsed_ns) / events;
}

void ReplayRun::run_pass() {
  auto& state = core_.state;
  auto& accounts = core_.accounts;
  auto& pass = accounts.pass;
  auto& summary = core_.judge.summary;
  const bool first = state.pass == 0;
  pass = {};
  accounts.earlier = {};
  for (auto& [ordinal, device] : core_.contexts.devices()) device.held_most = device.held;
  if (parallel_) parallel_->rewind();
  (void)core_.contexts.reports().take_flushes();  // those between the passes
  const auto backing_before = operations_.recorded.backing_events();
  const auto size = state.trace.size();
  const auto end =
      static_cast<std::size_t>(std::min<std::uint64_t>(state.options.stop_at.value_or(size), size));

  std::size_t before_clock = 0, done = 0;
  pool_step_ = 0;
  do {
    before_clock = std::min(end_of_preexisting(done), end);
    if (done == before_clock) break;
    while (done < before_clock && !state.stop) {
      const auto part_end = std::min(before_clock, follow_pools(done));
      if (!state.stop) done = execute_range(core_, operations_, done, part_end);
    }
  } while (state.trace.is_window() && !state.stop);
  if (first) {
    accounts.alloc_times.clear();
    accounts.free_times.clear();
  }
  if (parallel_) core_.contexts.open_all();
  accounts.waited_ns = 0;
  const auto begin_ns = core_.now();
  const auto model_begin_ns = core_.clock.model_ns();
  done = execute(done, end);
  pass.elapsed_ns = core_.now() - begin_ns;
  pass = accounts.whole_pass();
  const auto model_elapsed_ns = core_.clock.model_ns() - model_begin_ns;
  if (state.fatal) return;

  measure_pass(done - std::min(done, before_clock), model_elapsed_ns);
  pass.events = done - (operations_.recorded.backing_events() - backing_before);
  core_.contexts.for_each_open([&](ContextState& one) { accounts.measure_reserved(one); });
  pass.reserved_at_end_bytes = accounts.reserved_bytes;
  if (first) {
    summary.flushes = core_.contexts.reports().take_flushes();
    for (auto& flush : summary.flushes) flush.seq = state.trace.seq(flush.event);
  }
  if (!state.stop && end < size) {
    state.stop = true;
    summary.stopped_at = end;
    state.at = end;
    summary.stop_state = core_.judge.capture(trace::Outcome::none, "");
  }
  if (!state.stop) count_leaks();
  const bool more = !state.stop && state.pass + 1 < state.options.repeat;
  if (!more) read_statistics();
  end_leftovers(more);
  if (more) complete_frees();
  core_.log.write_ordered();
  if (!state.stop && state.options.checks) check_balance();
  core_.judge.judge_reports(pass);
  if (first) {
    summary.pass = pass;
    for (const auto& [ordinal, device] : core_.contexts.devices()) {
      summary.peak_reserved_by_device.emplace_back(ordinal, device.held_most);
    }
  }
  if (state.options.repeat > 1) summary.repeats.push_back(pass);
}

void ReplayRun::count_leaks() {
  const auto& held = core_.held;
  core_.state.at = core_.state.trace.size();
  const auto count_leak = [&](std::uint64_t size) {
    ++core_.accounts.pass.leaked;
    core_.accounts.pass.leaked_bytes += size;
  };
  for (const auto slot : held.live.by_id()) {
    if (held.live[slot].ended) continue;
    count_leak(held.live[slot].size);
    core_.checks.check_content(held.live[slot]);
  }
  for (const auto& [id, host] : held.hosts) {
    if (host.ended) continue;
    count_leak(host.size);
    core_.checks.check_content(AllocId{id}, host);
  }
  for (const auto& [id, import] : held.imports) count_leak(import.size);
  if (core_.state.pass == 0) core_.judge.summary.leaks = held.biggest(core_.state);
}

void ReplayRun::report_leftover(const Status& freed) {
  if (freed) return;
  core_.contexts.reports().add_failed_free(freed.error(), core_.state.at, false);
}

void ReplayRun::end_leftovers(bool logged) {
  const ExcludedTime excluded(core_.clock);
  auto& held = core_.held;
  if (core_.checker) {
    for (const auto slot : held.live.by_id()) {
      if (!held.live[slot].ended) core_.order.order_before_free(held.live[slot], {});
    }
    core_.order.finish_all_work();
  }
  operations_.streams.destroy_events();
  for (const auto& context : core_.contexts.all()) context->end_all_defer_cleanup();
  for (const auto& [id, import] : held.imports) report_leftover(operations_.ipc.close(import));
  held.imports.clear();
  operations_.ipc.forget_handles();
  end_leftover_host_memory(logged);
  end_leftover_device_memory(logged);
  if (core_.checker) core_.order.report_hazards();
  core_.order.forget_users();
  core_.accounts.clear_live();
  held.refused.clear();
}

void ReplayRun::end_leftover_host_memory(bool logged) {
  for (auto& [id, host] : core_.held.hosts) {
    if (host.ended) continue;
    if (logged) {
      core_.log.add_ended(Op::free, AllocId{id}, host.context, {core_.now(), core_.now()},
                          host.log_address, host.size, host.made_by);
    }
    report_leftover(std::visit([](auto& memory) { return memory.free(); }, host.memory));
  }
  core_.held.hosts.clear();
}

void ReplayRun::end_leftover_device_memory(bool logged) {
  auto& set = core_.held.live;
  for (const auto slot : set.by_id()) {
    auto& live = set[slot];
    core_.checks.erase_address(live);
    if (!live.ended) {
      if (logged) {
        core_.log.add_ended(Op::free, live.id, live.context, {core_.now(), core_.now()},
                            live.memory.device_pointer().value, live.size, live.made_by);
      }
      report_leftover(live.memory.free());
    }
    set.end(slot, set.cache());
  }
}

void ReplayRun::check_balance() {
  for (std::size_t i = 0; i < core_.contexts.size(); ++i) {
    auto& context = core_.contexts[static_cast<ContextId>(i)];
    if (!context.open()) continue;
    const auto state = context.context().memory_manager().state();
    if (state.live_bytes.value_or(0) == 0) continue;
    core_.judge.add_violation(
        log::Violation::Kind::balance,
        text::format("all was freed, and the manager of context {} says that {} bytes are live",
                     core_.state.trace.contexts()[i].name, *state.live_bytes));
  }
}

void ReplayRun::read_statistics() {
  const EngineWork work(core_.clock);
  const auto& options = core_.state.options;
  for (std::size_t i = 0; i < core_.contexts.size(); ++i) {
    auto& context = core_.contexts[static_cast<ContextId>(i)];
    if (!context.open()) continue;
    const auto& manager = context.context().memory_manager();
    const auto counted = manager.statistics();
    log::ContextStatistics statistics{.context = core_.state.trace.contexts()[i].name,
                                      .torch = torch_statistics(counted),
                                      .rmm = rmm_statistics(counted),
                                      .other = other_statistics(counted)};
    if (options.look) options.look(statistics, context.device(), manager.memory_map());
    if (!statistics.torch.empty()) {
      core_.judge.summary.statistics.push_back(std::move(statistics));
    }
  }
}

void ReplayRun::finish() {
  auto& summary = core_.judge.summary;
  const auto& accounts = core_.accounts;
  if (core_.state.options.latency) {
    if (accounts.alloc_times.count() != 0) {
      summary.alloc_latency = accounts.alloc_times.percentiles();
    }
    if (accounts.free_times.count() != 0) {
      summary.free_latency = accounts.free_times.percentiles();
    }
  }
  operations_.recorded.summarize(summary);
  core_.contexts.for_each_open([&](ContextState& context) {
    summary.reports += context.context().memory_manager().report();
  });
  core_.judge.keep(KeptHeader::Phase::over);
  // A manager frees its memory when it ends, which may fail.
  for (const auto& context : core_.contexts.all()) context->end();
  core_.judge.judge_reports(summary.pass);
  if (core_.pace) summary.lateness = accounts.lateness.percentiles();
  if (parallel_) summary.threads = parallel_->thread_count();
  operations_.recorded.add_notes(summary.notes);
  add_pool_notes();
}

void ReplayRun::add_numbers(log::Summary& summary) const {
  const auto& state = core_.state;
  const auto& found = core_.judge.summary;
  summary.pass = state.pass == 0 ? core_.accounts.whole_pass() : found.pass;
  if (state.pass == 0) {
    summary.pass.events = state.at - std::min(state.at, operations_.recorded.backing_events());
  }
  summary.outcomes = found.outcomes;
  summary.refused_again = found.refused_again;
  summary.violation_count = found.violation_count;
  summary.skipped = found.skipped;
}

log::Failure ReplayRun::ended_at(const trace::Trace& trace, const log::Abnormal& how) const {
  log::Failure failure;
  failure.event = how.event.value_or(core_.state.at);
  failure.outcome = trace::Outcome::error;
  failure.error = how.words;
  failure.live_bytes = core_.accounts.live_bytes;
  failure.reserved_bytes = core_.accounts.reserved_bytes;
  name_event(failure, trace);
  return failure;
}

}  // namespace emm::replay
