#include "driver/sim/scheduler.hpp"

#include <utility>

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

std::uint64_t Scheduler::create_stream(Asker asker, StreamKind kind) {
  const std::lock_guard lock(mutex_);
  return table_.create_stream(asker.device, asker.context, kind);
}

std::int32_t Scheduler::destroy_stream(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  return table_.destroy_stream(stream) ? kSuccess : kInvalidHandle;
}

std::uint64_t Scheduler::create_event(Asker asker) {
  const std::lock_guard lock(mutex_);
  return table_.create_event(asker.device);
}

std::int32_t Scheduler::destroy_event(EventHandle event) {
  const std::lock_guard lock(mutex_);
  return table_.destroy_event(event) ? kSuccess : kInvalidHandle;
}

std::int32_t Scheduler::check(Asker asker, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  return stream_of(asker, stream) != nullptr ? kSuccess : kInvalidHandle;
}

// Documented (multi-device system): a copy may be put on a stream of another device; other work may
// not.
std::int32_t Scheduler::put(Asker asker, StreamHandle handle, const Work& work) {
  Lock lock(mutex_);
  auto* stream = stream_of(asker, handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->device != asker.device && work.kind != Work::Kind::copy) return kInvalidHandle;
  append(*stream, {.work = work, .after = {}}, lock);
  turn(lock);
  return kSuccess;
}

// Documented: an event and the stream that it records must belong to one device. If nothing is
// pending before it, the record is done at once.
std::int32_t Scheduler::record(Asker asker, EventHandle handle, StreamHandle stream_handle) {
  Lock lock(mutex_);
  auto* event = table_.event(handle);
  auto* stream = stream_of(asker, stream_handle);
  if (event == nullptr || stream == nullptr || event->device != stream->device)
    return kInvalidHandle;
  auto& timeline = table_.timeline(stream->device);
  if (stream->pending.empty() && before(*stream).points().empty()) {
    *event = {.device = event->device, .point = {stream->id, stream->put}, .known = {}};
    event->end_ns = stream->legacy ? timeline.blocking_end_ns : stream->end_ns;
    return kSuccess;
  }
  const auto id =
      append(*stream, {.work = {.kind = Work::Kind::record, .event = handle}, .after = {}}, lock);
  stream = table_.find(id);
  event = table_.event(handle);
  if (event != nullptr && stream != nullptr) {
    event->point = {id, stream->put};
    event->known = stream->known;
  }
  turn(lock);
  return kSuccess;
}

std::int32_t Scheduler::wait_event(Asker asker, StreamHandle stream_handle, EventHandle handle) {
  Lock lock(mutex_);
  const auto* event = table_.event(handle);
  auto* stream = stream_of(asker, stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  const auto point = event->point;
  if (point.stream == 0 || point.stream == stream->id) return kSuccess;
  if (table_.is_done(point)) {
    if (stream->pending.empty()) raise_end(*stream, event->end_ns);
    return kSuccess;
  }
  QueuedWork queued;
  queued.after.add(point);
  stream->known.add(event->known);
  append(*stream, std::move(queued), lock);
  turn(lock);
  return kSuccess;
}

Answer<bool> Scheduler::query(Asker asker, StreamHandle handle) {
  Lock lock(mutex_);
  turn(lock);
  for (bool again = true;; again = false) {
    const auto* stream = stream_of(asker, handle);
    if (stream == nullptr) return {.native = kInvalidHandle};
    const auto undone = first_undone(all_of(*stream));
    if (!undone) {
      const auto& timeline = table_.timeline(stream->device);
      const auto end_ns = stream->legacy ? timeline.blocking_end_ns : stream->end_ns;
      return {.native = kSuccess, .value = end_ns <= now_ns()};
    }
    if (!again || !pass_vain_query(*undone, lock)) return {.native = kSuccess, .value = false};
  }
}

Answer<bool> Scheduler::query(EventHandle handle) {
  Lock lock(mutex_);
  turn(lock);
  for (bool again = true;; again = false) {
    const auto* event = table_.event(handle);
    if (event == nullptr) return {.native = kInvalidHandle};
    if (table_.is_done(event->point))
      return {.native = kSuccess, .value = event->end_ns <= now_ns()};
    if (!again || !pass_vain_query(event->point, lock)) return {.native = kSuccess, .value = false};
  }
}

std::int32_t Scheduler::synchronize(Asker asker, StreamHandle handle) {
  Lock lock(mutex_);
  const auto* stream = stream_of(asker, handle);
  if (stream == nullptr) return kInvalidHandle;
  const auto id = stream->id;
  const auto all = all_of(*stream);
  for (const auto& point : all.points()) run_to(point, lock);
  stream = table_.find(id);
  if (stream == nullptr) return kSuccess;
  wait_until(stream->legacy ? table_.timeline(stream->device).blocking_end_ns : stream->end_ns);
  return kSuccess;
}

std::int32_t Scheduler::synchronize(EventHandle handle) {
  Lock lock(mutex_);
  const auto* event = table_.event(handle);
  if (event == nullptr) return kInvalidHandle;
  const auto point = event->point;
  run_to(point, lock);
  event = table_.event(handle);
  if (event != nullptr) wait_until(event->end_ns);
  return kSuccess;
}

void Scheduler::drop(int device) {
  const std::lock_guard lock(mutex_);
  table_.drop(device);
  returned_.notify_all();
}

void Scheduler::finish_device(int device, bool blocking_only) {
  Lock lock(mutex_);
  VectorClock all;
  for (const auto id : table_.timeline(device).busy) {
    const auto& stream = *table_.find(id);
    if (stream.blocking || !blocking_only) all.add({id, stream.put});
  }
  for (const auto& point : all.points()) run_to(point, lock);
  const auto& timeline = table_.timeline(device);
  wait_until(blocking_only ? timeline.blocking_end_ns : timeline.end_ns);
  bool quiet = true;
  for (int other = 0; other < table_.devices(); ++other) {
    quiet &= table_.timeline(other).busy.empty() && table_.timeline(other).end_ns <= now_ns();
  }
  if (quiet) quiet_.store(true, std::memory_order_release);
}

Answer<Point> Scheduler::now_on(Asker asker, StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto* stream = stream_of(asker, handle);
  if (stream == nullptr) return {.native = kInvalidHandle};
  return {.native = kSuccess, .value = {stream->id, stream->put}};
}

Answer<Point> Scheduler::mark(Asker asker, StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  auto* stream = stream_of(asker, handle);
  if (stream == nullptr) return {.native = kInvalidHandle};
  if (!stream->pending.empty() || !before(*stream).points().empty()) push(*stream, {});
  return {.native = kSuccess, .value = {stream->id, stream->put}};
}

bool Scheduler::is_over(Point point) {
  const std::lock_guard lock(mutex_);
  const auto* stream = table_.find(point.stream);
  return stream == nullptr || (stream->done >= point.number && stream->end_ns <= now_ns());
}

bool Scheduler::follows(std::uint64_t id, Point point) {
  const std::lock_guard lock(mutex_);
  const auto* stream = table_.find(id);
  return stream != nullptr && stream->known.covers(point);
}

void Scheduler::order(std::uint64_t id, Point point) {
  const std::lock_guard lock(mutex_);
  auto* stream = table_.find(id);
  if (stream == nullptr || table_.is_done(point)) return;
  QueuedWork queued;
  queued.after.add(point);
  push(*stream, std::move(queued));
}

Stream* Scheduler::stream_of(Asker asker, StreamHandle handle) {
  return table_.resolve(asker.device, asker.context, handle);
}

std::uint64_t Scheduler::now_ns() const noexcept { return platform_.clock().now_ns(); }

void Scheduler::wait_until(std::uint64_t ns) {
  const auto now = now_ns();
  if (ns > now) platform_.clock().advance(ns - now);
}

}  // namespace emm::sim
