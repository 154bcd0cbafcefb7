#include "inspect/profile.hpp"

#include <algorithm>
#include <map>

#include "inspect/level.hpp"

namespace emm::inspect {
namespace {

using trace::Op;
using What = trace::Lifetime::What;

void count_events(const trace::Lifetimes& lifetimes, Profile& out) {
  const auto& trace = lifetimes.trace();
  out.events = trace.size();
  out.threads.resize(trace.threads().size());
  out.streams.resize(trace.streams().size());
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    const bool backing = event.has(trace::event_flag::backing);
    ++out.by_op[static_cast<std::size_t>(event.op)];
    last = std::max(last, event.time_ns);
    if (backing) {
      ++out.backing_by_op[static_cast<std::size_t>(event.op)];
      if (event.op == Op::flush && out.backing) {
        out.backing->flushes += trace.detail(event).count != 0 ? 1 : 0;
        out.backing->flushed_bytes += trace.detail(event).bytes;
      }
      continue;
    }
    auto& thread = out.threads[index(event.thread)];
    ++thread.events;
    const bool makes = asks_for_device_memory(event.op);
    if (!makes && event.op != Op::free) continue;
    const auto& lifetime = lifetimes[event.id];
    if (makes && lifetime.what == What::nothing) ++out.failed;
    if (lifetime.what != What::device) continue;
    auto& stream = out.streams[index(event.stream)];
    ++stream.events;
    for (auto* share : {&thread, &stream}) {
      if (makes) {
        ++share->allocs;
        share->bytes += event.size;
      } else {
        ++share->frees;
      }
    }
    if (makes) continue;
    thread.frees_of_others += lifetime.thread != event.thread ? 1 : 0;
    stream.frees_of_others += lifetime.stream != event.stream ? 1 : 0;
  }
  out.has_times = last > 0;
  out.span_ns = last;
}

/// Counts rows by the operations that stand for them. A row may be several operations, and memory
/// from before the first row has none.
Actions count_rows(const Recording& recording, const trace::Lifetimes& lifetimes) {
  const auto& trace = lifetimes.trace();
  Actions out{};
  const auto count = [&](Action action) { ++out[static_cast<std::size_t>(action)]; };
  for (std::uint32_t i = 0; i < lifetimes.all().size(); ++i) {
    const auto id = static_cast<AllocId>(i);
    const auto& lifetime = lifetimes[id];
    const bool backing = lifetime.what == What::backing;
    if (!backing && lifetime.what != What::device) continue;
    const bool mapped = backing && recording.is_mapped(id);
    if (!lifetime.preexisting && recording.has_row(lifetime.birth)) {
      count(mapped ? Action::segment_map : backing ? Action::segment_alloc : Action::alloc);
    }
    if (lifetime.death == trace::kNever || trace[lifetime.death].op != Op::free) continue;
    if (recording.has_row(lifetime.death)) {
      count(mapped    ? Action::segment_unmap
            : backing ? Action::segment_free
                      : Action::free_requested);
    }
    if (!backing && lifetime.gone != trace::kNever) count(Action::free_completed);
  }
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    const bool asks = asks_for_device_memory(event.op);
    if (asks && event.recorded() == trace::Outcome::oom && !event.has(trace::event_flag::backing))
      count(Action::oom);
  }
  return out;
}

void measure(const trace::Lifetimes& lifetimes, Profile& out) {
  std::vector<std::uint64_t> sizes, events, times;
  std::map<std::uint64_t, SizeClass> classes;
  const auto& trace = lifetimes.trace();
  for (const auto& lifetime : lifetimes.all()) {
    if (lifetime.what != What::device) continue;
    ++out.allocs;
    out.bytes += lifetime.size;
    sizes.push_back(lifetime.size);
    auto& in = classes[class_of(lifetime.size)];
    ++in.count;
    in.bytes += lifetime.size;
    if (lifetime.live_at(out.live.event)) {
      ++in.at_peak_count;
      in.at_peak_bytes += lifetime.size;
    }
    if (lifetime.death == trace::kNever || lifetime.preexisting) continue;
    events.push_back(lifetime.death - lifetime.birth);
    if (!out.has_times) continue;
    const auto from = trace[lifetime.birth].time_ns, to = trace[lifetime.death].time_ns;
    times.push_back(to > from ? to - from : 0);
  }
  out.sizes = percentiles_of(sizes);
  out.lifetime_events = percentiles_of(events);
  out.lifetime_ns = percentiles_of(times);
  for (auto& [from, in] : classes) {
    in.from = from;
    out.size_classes.push_back(in);
  }
}

}  // namespace

Holding held_after(const trace::Lifetimes& lifetimes, std::uint32_t event,
                   std::optional<std::uint32_t> device) {
  event = std::max(event, static_cast<std::uint32_t>(lifetimes.trace().first_moment()));
  return held(lifetimes, [&](const trace::Lifetime& lifetime) {
    return lifetime.live_at(event) && (!device || lifetimes.device(lifetime) == *device);
  });
}

Holding held_at_end(const trace::Lifetimes& lifetimes, bool preexisting) {
  return held(lifetimes, [&](const trace::Lifetime& lifetime) {
    return lifetime.death == trace::kNever && lifetime.preexisting == preexisting;
  });
}

void leave_out_unknown(const trace::Header& header, Profile& out) {
  const auto curve = trace::curve_of(header);
  if (curve == trace::Curve::none) return;
  out.lifetime_events = out.lifetime_ns = {};
  if (curve == trace::Curve::blocks) return;
  out.sizes = {};
  out.size_classes.clear();
  for (auto* held : {&out.at_peak, &out.leaked, &out.preexisting_at_end}) held->by_size.clear();
}

Profile profile(const Recording& recording, const trace::Lifetimes& lifetimes) {
  const auto& trace = recording.trace();
  Profile out;
  std::map<std::uint32_t, Level> by_device;
  std::vector<Level> by_thread(trace.threads().size()), by_stream(trace.streams().size());
  Level live, active, host, reserved;
  // Sizes of memory that was freed and is not free yet, by the event at which it will be free.
  std::map<std::uint32_t, std::vector<std::uint64_t>> pending_until;
  Level pending;
  Backing backing;
  bool any_backing = false;
  const auto moment = static_cast<std::uint32_t>(trace.first_moment());
  const auto moments = trace.size() - moment;
  out.live_over_events.resize(std::min(moments, Profile::kCurveParts));
  const auto change = [&](AllocId id, bool begins) {
    const auto& lifetime = lifetimes[id];
    const auto step = [&](Level& level) {
      begins ? level.begin(lifetime.size) : level.end(lifetime.size);
    };
    switch (lifetime.what) {
      case What::device:
        for (auto* level :
             {&live, &by_device[lifetimes.device(lifetime)], &by_thread[index(lifetime.thread)],
              &by_stream[index(lifetime.stream)]}) {
          step(*level);
        }
        if (begins) active.begin(lifetime.size);
        if (!begins && lifetime.gone > lifetime.death) {
          pending.begin(lifetime.size);
          pending_until[lifetime.gone].push_back(lifetime.size);
        } else if (!begins) {
          active.end(lifetime.size);
        }
        break;
      case What::host:
        step(host);
        break;
      case What::backing:
        any_backing = true;
        step(reserved);
        if (begins && lifetime.preexisting) {
          ++backing.segments_before;
        } else if (recording.has_row(begins ? lifetime.birth : lifetime.death)) {
          ++(begins ? backing.segments_made : backing.segments_given_back);
        }
        break;
      default:
        break;
    }
  };
  lifetimes.walk_moments(
      [&](std::uint32_t, AllocId id) { change(id, true); },
      [&](std::uint32_t, AllocId id) { change(id, false); },
      [&](std::uint32_t event) {
        if (!pending_until.empty() && pending_until.begin()->first <= event) {
          for (const auto size : pending_until.begin()->second) {
            pending.end(size);
            active.end(size);
          }
          pending_until.erase(pending_until.begin());
        }
        pending.update_peak(event);
        active.update_peak(event);
        const auto& each = trace[event];
        auto& most = out.live_over_events[static_cast<std::size_t>(
            std::uint64_t{event - moment} * out.live_over_events.size() / moments)];
        most = std::max(most, live.bytes);
        if (live.update_peak(event)) backing.reserved_at_live = reserved.bytes;
        if (reserved.update_peak(event)) backing.live_at_reserved = live.bytes;
        host.update_peak(event);
        if (event == moment) {
          for (auto* levels : {&by_thread, &by_stream}) {
            for (auto& level : *levels) level.update_peak(event);
          }
        } else if (each.op == Op::reset || each.op == Op::context_destroy || each.op == Op::free) {
          return;
        }
        for (auto& [device, level] : by_device) level.update_peak(event);
        by_thread[index(each.thread)].update_peak(event);
        by_stream[index(each.stream)].update_peak(event);
      });
  out.live = live.peak;
  out.active = active.peak;
  out.pending_at_end = pending.count;
  out.pending_bytes_at_end = pending.bytes;
  out.live_at_end_bytes = live.bytes;
  out.actions = count_rows(recording, lifetimes);
  out.host = host.peak;
  for (const auto& [device, level] : by_device) out.live_by_device.emplace_back(device, level.peak);
  if (any_backing) {
    backing.reserved = reserved.peak;
    backing.reserved_at_end = reserved.bytes;
    backing.pending_peak = pending.peak.bytes;
    out.backing = backing;
  }
  count_events(lifetimes, out);
  for (std::size_t i = 0; i < by_thread.size(); ++i)
    out.threads[i].peak_live_bytes = by_thread[i].peak.bytes;
  for (std::size_t i = 0; i < by_stream.size(); ++i)
    out.streams[i].peak_live_bytes = by_stream[i].peak.bytes;
  measure(lifetimes, out);
  out.at_peak = held_after(lifetimes, out.live.event);
  out.leaked = held_at_end(lifetimes, false);
  out.preexisting_at_end = held_at_end(lifetimes, true);
  out.categories = recording.categories().use(static_cast<std::uint32_t>(trace.first_moment()),
                                              out.live.event, trace.size());
  leave_out_unknown(trace.header(), out);
  return out;
}

}  // namespace emm::inspect
