#include "inspect/profile_walk.hpp"

#include <algorithm>
#include <utility>

#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

using trace::Op;
using MemoryKind = trace::Lifetime::MemoryKind;
namespace event_flag = trace::event_flag;

template <class T>
T& at_least(std::vector<T>& row, std::size_t index) {
  if (row.size() <= index) row.resize(index + 1);
  return row[index];
}

}  // namespace

LiveLevel& ProfileWalk::thread(ThreadId id) { return at_least(by_thread_, index(id)); }
LiveLevel& ProfileWalk::stream(StreamId id) { return at_least(by_stream_, index(id)); }

void ProfileWalk::step(const Walk& walk, const LiveMemory& memory, bool begins) {
  const auto change = [&](LiveLevel& level) {
    begins ? level.begin(memory.size) : level.end(memory.size);
  };
  switch (memory.what) {
    case MemoryKind::device:
      change(live_);
      change(by_device_[walk.device(memory)]);
      change(thread(memory.thread));
      change(stream(memory.stream));
      return;
    case MemoryKind::host:
      return change(host_);
    case MemoryKind::backing:
      any_backing_ = true;
      return change(reserved_);
    default:
      return;
  }
}

void ProfileWalk::began(const Walk& walk, std::uint32_t, const LiveMemory& memory) {
  grew_ = true;
  step(walk, memory, true);
  const bool has_row = !memory.preexisting && walk.has_row();
  if (memory.what == MemoryKind::backing) {
    if (memory.preexisting) ++backing_.segments_before;
    if (!has_row) return;
    ++backing_.segments_made;
    return count_row(memory.mapped ? Action::segment_map : Action::segment_alloc);
  }
  if (!memory.is_device()) return;
  if (has_row) count_row(Action::alloc);
  active_.begin(memory.size);
  ++out_.allocs;
  out_.bytes += memory.size;
  sizes_.add(memory.size);
  auto& in = classes_[class_of(memory.size)];
  ++in.count;
  in.bytes += memory.size;
}

void ProfileWalk::ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) {
  step(walk, memory, false);
  const bool has_row = walk.event().op == Op::free && walk.has_row();
  if (memory.what == MemoryKind::backing) {
    if (!has_row) return;
    ++backing_.segments_given_back;
    return count_row(memory.mapped ? Action::segment_unmap : Action::segment_free);
  }
  if (!memory.is_device()) return;
  if (has_row) count_row(Action::free_requested);
  if (memory.gone > event) {
    grew_ = true;
    pending_.begin(memory.size);
  } else {
    active_.end(memory.size);
    if (walk.event().op == Op::free) count_row(Action::free_completed);
  }
  if (memory.birth <= live_.peak.event) over_since_peak_.push_back({memory.size, memory.site});
  if (memory.preexisting) return;
  lifetime_events_.add(event - memory.birth);
  const auto now = walk.event().time_ns;
  lifetime_ns_.add(now > memory.time_ns ? now - memory.time_ns : 0);
}

void ProfileWalk::completed(const Walk&, std::uint32_t, const LiveMemory& memory) {
  if (!memory.is_device()) return;
  pending_.end(memory.size);
  active_.end(memory.size);
  if (!memory.by_reset) count_row(Action::free_completed);
}

void ProfileWalk::update_peaks(std::uint32_t event, const trace::Trace::Place& at) {
  if (live_.update_peak(event, at)) {
    over_since_peak_.clear();
    backing_.reserved_at_live = reserved_.bytes;
  }
  if (reserved_.update_peak(event, at)) backing_.live_at_reserved = live_.bytes;
  host_.update_peak(event, at);
  active_.update_peak(event);
  pending_.update_peak(event);
}

/// Looks at all that is live after the first moment, whoever allocated it.
void ProfileWalk::begin_moment(std::uint32_t event, const trace::Trace::Place& at) {
  update_peaks(event, at);
  for (auto& [device, level] : by_device_) level.update_peak(event, at);
  for (auto* levels : {&by_thread_, &by_stream_}) {
    for (auto& level : *levels) level.update_peak(event);
  }
}

void ProfileWalk::recording_begins(const Walk& walk, std::uint32_t first_moment) {
  first_moment_ = first_moment;
  over_since_peak_.clear();
  begin_moment(first_moment, walk.first_moment_place());
}

void ProfileWalk::passed(const Walk& walk, std::uint32_t event) {
  const auto& each = walk.event();
  const trace::Trace::Place at{.line = each.line, .time_ns = each.time_ns};
  if (event == 0) first_place_ = at;
  if (std::exchange(grew_, false) && walk.has_begun()) {
    if (event == first_moment_) {
      begin_moment(event, at);
    } else {
      update_peaks(event, at);
      for (auto& [device, level] : by_device_) level.update_peak(event, at);
      thread(each.thread).update_peak(event);
      stream(each.stream).update_peak(event);
    }
  }
  if (!first_refused_ && trace::is_refused(each)) first_refused_ = event;
  count(walk);
}

void ProfileWalk::count(const Walk& walk) {
  const auto& event = walk.event();
  ++out_.events;
  ++out_.by_op[static_cast<std::size_t>(event.op)];
  last_time_ = std::max(last_time_, event.time_ns);
  if (event.has(event_flag::backing)) {
    ++out_.backing_by_op[static_cast<std::size_t>(event.op)];
    if (event.op == Op::flush) {
      const auto& detail = walk.trace().detail(event);
      backing_.flushes += detail.count != 0 ? 1 : 0;
      backing_.flushed_bytes += detail.bytes;
    }
    return;
  }
  auto& thread = at_least(out_.threads, index(event.thread));
  ++thread.events;
  const bool makes = asks_for_device_memory(event.op);
  if (makes && event.recorded() == trace::Outcome::oom) count_row(Action::oom);
  if (!makes && event.op != Op::free) return;
  const auto& memory = walk.memory();
  if (makes && memory.what == MemoryKind::nothing) ++out_.failed;
  if (!memory.is_device()) return;
  auto& stream = at_least(out_.streams, index(event.stream));
  ++stream.events;
  for (auto* share : {&thread, &stream}) {
    if (makes) {
      ++share->allocs;
      share->bytes += event.size;
    } else {
      ++share->frees;
    }
  }
  if (makes) return;
  thread.frees_of_others += memory.thread != event.thread ? 1 : 0;
  stream.frees_of_others += memory.stream != event.stream ? 1 : 0;
}

// Live at the peak was what is live at the end and was born by then, and what has ended since. The
// walk kept the latter.
Profile ProfileWalk::finish(Walk& walk) {
  const auto& trace = walk.trace();
  auto out = std::move(out_);
  out.threads.resize(trace.threads().size());
  out.streams.resize(trace.streams().size());
  by_thread_.resize(out.threads.size());
  by_stream_.resize(out.streams.size());
  for (std::size_t i = 0; i < by_thread_.size(); ++i)
    out.threads[i].peak_live_bytes = by_thread_[i].peak.bytes;
  for (std::size_t i = 0; i < by_stream_.size(); ++i)
    out.streams[i].peak_live_bytes = by_stream_[i].peak.bytes;
  out.has_times = last_time_ > 0;
  out.span_ns = last_time_;
  out.live = live_.peak;
  out.active = active_.peak;
  out.pending_at_end = pending_.count;
  out.pending_bytes_at_end = pending_.bytes;
  out.live_at_end_bytes = live_.bytes;
  out.host = host_.peak;
  walk.note_place(0, first_place_);
  const auto place = [&](const PlacedLevel& level) {
    if (level.peak.count > 0) walk.note_place(level.peak.event, level.place);
  };
  for (const auto& [device, level] : by_device_) {
    out.live_by_device.emplace_back(device, level.peak);
    place(level);
  }
  for (const auto* level : {&live_, &host_, &reserved_}) place(*level);
  if (any_backing_) {
    backing_.reserved = reserved_.peak;
    backing_.reserved_at_end = reserved_.bytes;
    backing_.pending_peak = pending_.peak.bytes;
    out.backing = backing_;
  }
  HeldMemorySum at_peak, leaked, preexisting;
  for (const auto& past : over_since_peak_) at_peak.add(past.size, past.site);
  walk.each_live([&](const LiveMemory& memory) {
    if (!memory.is_device()) return;
    (memory.preexisting ? preexisting : leaked).add(memory.size, memory.site);
    if (memory.birth <= live_.peak.event) at_peak.add(memory.size, memory.site);
  });
  out.at_peak = at_peak.sum();
  out.leaked = leaked.sum();
  out.preexisting_at_end = preexisting.sum();
  for (const auto& group : out.at_peak.by_size) {
    auto& in = classes_[class_of(group.key)];
    in.at_peak_count += group.count;
    in.at_peak_bytes += group.bytes;
  }
  for (auto& [from, in] : classes_) {
    in.from = from;
    out.size_classes.push_back(in);
  }
  return out;
}

ProfileDetails::ProfileDetails(ProfileWalk& first_walk, Profile& profile)
    : first_walk_(first_walk), profile_(profile) {
  for (auto* percentiles :
       {&first_walk.sizes_, &first_walk.lifetime_events_, &first_walk.lifetime_ns_})
    percentiles->begin_again();
  moments_ = profile.events - first_walk.first_moment_;
  profile.live_over_events.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(moments_, Profile::kCurveParts)));
}

void ProfileDetails::began(const Walk&, std::uint32_t, const LiveMemory& memory) {
  if (!memory.is_device()) return;
  live_ += memory.size;
  first_walk_.sizes_.add_again(memory.size);
}

void ProfileDetails::ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) {
  if (!memory.is_device()) return;
  live_ -= memory.size;
  if (memory.preexisting) return;
  first_walk_.lifetime_events_.add_again(event - memory.birth);
  const auto now = walk.event().time_ns;
  first_walk_.lifetime_ns_.add_again(now > memory.time_ns ? now - memory.time_ns : 0);
}

void ProfileDetails::passed(const Walk&, std::uint32_t event) {
  auto& curve = profile_.live_over_events;
  if (event < first_walk_.first_moment_) return;
  const auto moment = std::uint64_t{event} - first_walk_.first_moment_;
  if (moment >= part_end_) {
    part_ = static_cast<std::size_t>(moment * curve.size() / moments_);
    part_end_ = ((part_ + 1) * moments_ + curve.size() - 1) / curve.size();
    most_ = 0;
  }
  if (live_ < most_) return;
  most_ = live_;
  curve[part_] = live_;
}

void ProfileDetails::finish() {
  profile_.sizes = first_walk_.sizes_.percentiles();
  profile_.lifetime_events = first_walk_.lifetime_events_.percentiles();
  if (profile_.has_times) profile_.lifetime_ns = first_walk_.lifetime_ns_.percentiles();
}

void CategoryWalk::told(const Walk& walk, std::uint32_t event, const trace::Operation& operation) {
  if (!reader_.may_tell(operation)) return;
  const bool has_id = operation.op != Op::extension && !trace::is_refused(walk.event());
  const auto id = has_id ? std::optional(walk.event().id) : std::nullopt;
  for (const auto& step : reader_.take(operation, event, id)) sums_.take(step);
}

}  // namespace emm::inspect
