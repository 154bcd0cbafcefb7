#include "inspect/streamed_profile.hpp"

#include <algorithm>

#include "inspect/extension_members.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using trace::Op;
using What = trace::Lifetime::What;
namespace event_flag = trace::event_flag;

template <class T>
T& at_least(std::vector<T>& row, std::size_t index) {
  if (row.size() <= index) row.resize(index + 1);
  return row[index];
}

}  // namespace

Level& ProfileWalk::thread(ThreadId id) { return at_least(by_thread_, index(id)); }
Level& ProfileWalk::stream(StreamId id) { return at_least(by_stream_, index(id)); }

void ProfileWalk::step(const LiveWalk& walk, const LiveMemory& memory, bool begins) {
  const auto change = [&](Level& level) {
    begins ? level.begin(memory.size) : level.end(memory.size);
  };
  switch (memory.what) {
    case What::device:
      change(live_);
      change(by_device_[walk.device(memory)]);
      change(thread(memory.thread));
      change(stream(memory.stream));
      return;
    case What::host:
      return change(host_);
    case What::backing:
      any_backing_ = true;
      return change(reserved_);
    default:
      return;
  }
}

void ProfileWalk::began(const LiveWalk& walk, std::uint32_t, const LiveMemory& memory) {
  step(walk, memory, true);
  if (memory.what != What::device) return;
  ++out_.allocs;
  out_.bytes += memory.size;
  sizes_.add(memory.size);
  auto& in = classes_[class_of(memory.size)];
  ++in.count;
  in.bytes += memory.size;
}

void ProfileWalk::ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) {
  step(walk, memory, false);
  if (memory.what != What::device) return;
  if (memory.birth <= live_.peak.event) over_since_peak_.push_back({memory.size, memory.site});
  if (memory.preexisting) return;
  lifetime_events_.add(event - memory.birth);
  const auto now = walk.event().time_ns;
  lifetime_ns_.add(now > memory.time_ns ? now - memory.time_ns : 0);
}

void ProfileWalk::update_peaks(std::uint32_t event, const trace::Trace::Place& at) {
  if (live_.update_peak(event, at)) {
    over_since_peak_.clear();
    backing_.reserved_at_live = reserved_.bytes;
  }
  if (reserved_.update_peak(event, at)) backing_.live_at_reserved = live_.bytes;
  host_.update_peak(event, at);
}

void ProfileWalk::recording_begins(const LiveWalk& walk, std::uint32_t first_moment) {
  first_moment_ = first_moment;
  over_since_peak_.clear();
  const auto& at = walk.first_moment_place();
  update_peaks(first_moment, at);
  for (auto& [device, level] : by_device_) level.update_peak(first_moment, at);
  for (auto* levels : {&by_thread_, &by_stream_}) {
    for (auto& level : *levels) level.update_peak(first_moment);
  }
}

void ProfileWalk::passed(const LiveWalk& walk, std::uint32_t event,
                         const trace::Operation& operation) {
  const auto& each = walk.event();
  const trace::Trace::Place at{.line = each.line, .time_ns = each.time_ns};
  if (event == 0) first_place_ = at;
  const bool ends = each.op == Op::reset || each.op == Op::context_destroy || each.op == Op::free;
  if (walk.has_begun()) update_peaks(event, at);
  if (walk.has_begun() && !ends) {
    for (auto& [device, level] : by_device_) level.update_peak(event, at);
    thread(each.thread).update_peak(event);
    stream(each.stream).update_peak(event);
  }
  if (!first_refused_ && trace::is_refused(each)) first_refused_ = event;
  count(walk, each);
  count_row(walk, each, operation);
}

void ProfileWalk::count(const LiveWalk& walk, const trace::Event& event) {
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
  if (!makes && event.op != Op::free) return;
  const auto& memory = walk[event.id];
  if (makes && memory.what == What::nothing) ++out_.failed;
  if (memory.what != What::device) return;
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

void ProfileWalk::count_row(const LiveWalk& walk, const trace::Event& each,
                            const trace::Operation& operation) {
  const auto row = [&](Action action) { ++out_.actions[static_cast<std::size_t>(action)]; };
  const bool backing = each.has(event_flag::backing);
  if (asks_for_device_memory(each.op) && each.recorded() == trace::Outcome::oom && !backing)
    row(Action::oom);
  const bool makes = gives_memory_an_id(each.op);
  if (!makes && each.op != Op::free) return;
  const auto& memory = walk[each.id];
  if (memory.what != What::backing && memory.what != What::device) return;
  const bool has_row = !operation.has(Member::extension) || !says(operation.extension, "x-no_row");
  const bool segment = memory.what == What::backing;
  if (makes) {
    if (segment && memory.preexisting) {
      ++backing_.segments_before;
    } else if (segment && has_row) {
      ++backing_.segments_made;
    }
    if (memory.preexisting || !has_row) return;
    return row(segment && memory.mapped ? Action::segment_map
               : segment                ? Action::segment_alloc
                                        : Action::alloc);
  }
  if (each.has(event_flag::late) && !segment) return;
  if (has_row) {
    row(segment && memory.mapped ? Action::segment_unmap
        : segment                ? Action::segment_free
                                 : Action::free_requested);
    if (segment) ++backing_.segments_given_back;
  }
  if (!segment) row(Action::free_completed);
}

Profile ProfileWalk::finish(LiveWalk& walk) {
  auto& trace = walk.trace();
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
  out.live = out.active = live_.peak;
  out.live_at_end_bytes = live_.bytes;
  out.host = host_.peak;
  trace.note_place(0, first_place_);
  const auto place = [&](const PlacedLevel& level) {
    if (level.peak.count > 0) trace.note_place(level.peak.event, level.place);
  };
  for (const auto& [device, level] : by_device_) {
    out.live_by_device.emplace_back(device, level.peak);
    place(level);
  }
  for (const auto* level : {&live_, &host_, &reserved_}) place(*level);
  if (any_backing_) {
    backing_.reserved = reserved_.peak;
    backing_.reserved_at_end = reserved_.bytes;
    out.backing = backing_;
  }
  HoldingSum at_peak, leaked, preexisting;
  for (const auto& past : over_since_peak_) at_peak.add(past.size, past.site);
  walk.each_live([&](AllocId, const LiveMemory& memory) {
    if (memory.what != What::device) return;
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
    : first_walk_(first_walk),
      profile_(profile),
      category_sums_(first_walk.first_moment_, profile.live.event, profile.events) {
  for (auto* percentiles :
       {&first_walk.sizes_, &first_walk.lifetime_events_, &first_walk.lifetime_ns_})
    percentiles->begin_again();
  moments_ = profile.events - first_walk.first_moment_;
  profile.live_over_events.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(moments_, Profile::kCurveParts)));
}

void ProfileDetails::began(const LiveWalk&, std::uint32_t, const LiveMemory& memory) {
  if (memory.what != What::device) return;
  live_ += memory.size;
  first_walk_.sizes_.add_again(memory.size);
}

void ProfileDetails::ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) {
  if (memory.what != What::device) return;
  live_ -= memory.size;
  if (memory.preexisting) return;
  first_walk_.lifetime_events_.add_again(event - memory.birth);
  const auto now = walk.event().time_ns;
  first_walk_.lifetime_ns_.add_again(now > memory.time_ns ? now - memory.time_ns : 0);
}

void ProfileDetails::told(std::uint32_t event, const trace::Operation& operation) {
  for (const auto& step : category_reader_.take(operation, event, std::nullopt))
    category_sums_.take(step);
}

void ProfileDetails::passed(const LiveWalk& walk, std::uint32_t event,
                            const trace::Operation& operation) {
  if (category_reader_.may_tell(operation)) {
    const auto& each = walk.event();
    const auto id = trace::is_refused(each) ? std::nullopt : std::optional(each.id);
    for (const auto& step : category_reader_.take(operation, event, id)) category_sums_.take(step);
  }
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
  profile_.categories = category_sums_.finish(category_reader_.names());
  profile_.sizes = first_walk_.sizes_.percentiles();
  profile_.lifetime_events = first_walk_.lifetime_events_.percentiles();
  if (profile_.has_times) profile_.lifetime_ns = first_walk_.lifetime_ns_.percentiles();
}

std::optional<Space> space_now(const LiveWalk& walk, std::uint32_t event,
                               std::optional<std::uint32_t> device) {
  std::vector<std::pair<AllocId, const LiveMemory*>> there;
  walk.each_live([&](AllocId id, const LiveMemory& memory) {
    const bool placed = memory.what == What::device || memory.what == What::backing;
    if (placed && (!device || walk.device(memory) == *device)) there.emplace_back(id, &memory);
  });
  std::sort(there.begin(), there.end(),
            [](const auto& a, const auto& b) { return a.second->birth < b.second->birth; });
  SpaceParts parts;
  std::vector<std::string> names;
  for (const auto& [id, memory] : there) {
    const bool added = parts.add({.address = memory->address,
                                  .size = std::max(memory->granted, memory->size),
                                  .id = static_cast<AllocId>(names.size()),
                                  .mapped = memory->mapped},
                                 memory->what, memory->size);
    if (added) names.push_back(walk.trace().name(id));
  }
  auto space = parts.joined(event);
  if (space) space->names = std::move(names);
  return space;
}

Holding held_now(const LiveWalk& walk, std::optional<std::uint32_t> device) {
  HoldingSum sum;
  walk.each_live([&](AllocId, const LiveMemory& memory) {
    if (memory.what == What::device && (!device || walk.device(memory) == *device))
      sum.add(memory.size, memory.site);
  });
  return sum.sum();
}

}  // namespace emm::inspect
