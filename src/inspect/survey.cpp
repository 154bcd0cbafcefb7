#include "inspect/survey.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace emm::inspect {
namespace {

using trace::Op;
using What = Life::What;

/// A sum over what is live, and where it was greatest.
struct Level {
  std::uint64_t bytes = 0, count = 0;
  Peak peak;
  void begin(std::uint64_t size) { bytes += size, ++count; }
  void end(std::uint64_t size) { bytes -= size, --count; }
  bool passed(std::uint32_t event) {
    if (bytes <= peak.bytes) return false;
    peak = {.bytes = bytes, .count = count, .event = event};
    return true;
  }
};

std::uint64_t class_of(std::uint64_t size) { return size == 0 ? 0 : std::bit_floor(size); }

void count_events(const Lives& lives, Survey& out) {
  const auto& trace = lives.trace();
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
    const bool makes = event.op == Op::memalloc || event.op == Op::memallocmanaged;
    if (!makes && event.op != Op::free) continue;
    const auto& life = lives[event.id];
    if (makes && life.what == What::nothing) ++out.failed;
    if (life.what != What::device) continue;
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
    thread.frees_of_others += life.thread != event.thread ? 1 : 0;
    stream.frees_of_others += life.stream != event.stream ? 1 : 0;
  }
  out.has_times = last > 0;
  out.span_ns = last;
}

/// By the operations that stand for rows: a row may be several, and what was before the first row
/// is of none.
Actions count_rows(const Recording& recording, const Lives& lives) {
  const auto& trace = lives.trace();
  Actions out{};
  const auto count = [&](Action action) { ++out[static_cast<std::size_t>(action)]; };
  for (std::uint32_t i = 0; i < lives.all().size(); ++i) {
    const auto id = static_cast<AllocId>(i);
    const auto& life = lives[id];
    const bool backing = life.what == What::backing;
    if (!backing && life.what != What::device) continue;
    const bool mapped = backing && recording.is_mapped(id);
    if (!life.preexisting && recording.has_row(life.birth)) {
      count(mapped ? Action::segment_map : backing ? Action::segment_alloc : Action::alloc);
    }
    if (life.death == kNever || trace[life.death].op != Op::free) continue;
    if (recording.has_row(life.death)) {
      count(mapped    ? Action::segment_unmap
            : backing ? Action::segment_free
                      : Action::free_requested);
    }
    if (!backing && life.gone != kNever) count(Action::free_completed);
  }
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    const bool asks = event.op == Op::memalloc || event.op == Op::memallocmanaged;
    if (asks && event.recorded() == trace::Outcome::oom && !event.has(trace::event_flag::backing))
      count(Action::oom);
  }
  return out;
}

void measure(const Lives& lives, Survey& out) {
  std::vector<std::uint64_t> sizes, events, times;
  std::map<std::uint64_t, SizeClass> classes;
  const auto& trace = lives.trace();
  for (const auto& life : lives.all()) {
    if (life.what != What::device) continue;
    ++out.allocs;
    out.bytes += life.size;
    sizes.push_back(life.size);
    auto& in = classes[class_of(life.size)];
    ++in.count;
    in.bytes += life.size;
    if (life.live_at(out.live.event)) {
      ++in.at_peak_count;
      in.at_peak_bytes += life.size;
    }
    if (life.death == kNever) continue;
    events.push_back(life.death - life.birth);
    if (!out.has_times || life.preexisting) continue;
    const auto from = trace[life.birth].time_ns, to = trace[life.death].time_ns;
    times.push_back(to > from ? to - from : 0);
  }
  out.sizes = spread_of(sizes);
  out.lifetime_events = spread_of(events);
  out.lifetime_ns = spread_of(times);
  for (auto& [from, in] : classes) {
    in.from = from;
    out.size_classes.push_back(in);
  }
}

}  // namespace

Holding held_after(const Lives& lives, std::uint32_t event, std::optional<std::uint32_t> device) {
  return held(lives, [&](const Life& life) {
    return life.live_at(event) && (!device || lives.device(life) == *device);
  });
}

Holding held_at_end(const Lives& lives, bool preexisting) {
  return held(lives, [&](const Life& life) {
    return life.death == kNever && life.preexisting == preexisting;
  });
}

Survey survey(const Recording& recording, const Lives& lives) {
  const auto& trace = recording.trace();
  Survey out;
  std::map<std::uint32_t, Level> by_device;
  std::vector<Level> by_thread(trace.threads().size()), by_stream(trace.streams().size());
  Level live, active, host, reserved;
  // Memory that its owner has freed and that is not free yet, by the event at which it will be.
  std::map<std::uint32_t, std::vector<std::uint64_t>> pending_until;
  Level pending;
  Backing backing;
  bool any_backing = false;
  const auto change = [&](AllocId id, bool begins) {
    const auto& life = lives[id];
    const auto step = [&](Level& level) { begins ? level.begin(life.size) : level.end(life.size); };
    switch (life.what) {
      case What::device:
        for (auto* level : {&live, &by_device[lives.device(life)], &by_thread[index(life.thread)],
                            &by_stream[index(life.stream)]}) {
          step(*level);
        }
        if (begins) active.begin(life.size);
        if (!begins && life.gone > life.death) {
          pending.begin(life.size);
          pending_until[life.gone].push_back(life.size);
        } else if (!begins) {
          active.end(life.size);
        }
        break;
      case What::host:
        step(host);
        break;
      case What::backing:
        any_backing = true;
        step(reserved);
        if (begins && life.preexisting) {
          ++backing.segments_before;
        } else if (recording.has_row(begins ? life.birth : life.death)) {
          ++(begins ? backing.segments_made : backing.segments_given_back);
        }
        break;
      default:
        break;
    }
  };
  lives.walk([&](std::uint32_t, AllocId id) { change(id, true); },
             [&](std::uint32_t, AllocId id) { change(id, false); },
             [&](std::uint32_t event) {
               if (!pending_until.empty() && pending_until.begin()->first <= event) {
                 for (const auto size : pending_until.begin()->second) {
                   pending.end(size);
                   active.end(size);
                 }
                 pending_until.erase(pending_until.begin());
               }
               pending.passed(event);
               active.passed(event);
               const auto& each = trace[event];
               if (live.passed(event)) backing.reserved_at_live = reserved.bytes;
               if (reserved.passed(event)) backing.live_at_reserved = live.bytes;
               host.passed(event);
               if (each.op == Op::reset || each.op == Op::context_destroy || each.op == Op::free)
                 return;
               for (auto& [device, level] : by_device) level.passed(event);
               by_thread[index(each.thread)].passed(event);
               by_stream[index(each.stream)].passed(event);
             });
  out.live = live.peak;
  out.active = active.peak;
  out.pending_at_end = pending.count;
  out.pending_bytes_at_end = pending.bytes;
  out.live_at_end_bytes = live.bytes;
  out.actions = count_rows(recording, lives);
  out.host = host.peak;
  for (const auto& [device, level] : by_device) out.live_by_device.emplace_back(device, level.peak);
  if (any_backing) {
    backing.reserved = reserved.peak;
    backing.reserved_at_end = reserved.bytes;
    backing.pending_peak = pending.peak.bytes;
    out.backing = backing;
  }
  count_events(lives, out);
  for (std::size_t i = 0; i < by_thread.size(); ++i)
    out.threads[i].peak_live_bytes = by_thread[i].peak.bytes;
  for (std::size_t i = 0; i < by_stream.size(); ++i)
    out.streams[i].peak_live_bytes = by_stream[i].peak.bytes;
  measure(lives, out);
  out.at_peak = held_after(lives, out.live.event);
  out.leaked = held_at_end(lives, false);
  out.preexisting_at_end = held_at_end(lives, true);
  return out;
}

}  // namespace emm::inspect
