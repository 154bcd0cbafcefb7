#include <algorithm>
#include <utility>
#include <vector>

#include "driver/sim/perform.hpp"
#include "driver/sim/scheduler.hpp"
#include "driver/sim/sim_platform.hpp"

// Chooses the work that is done next, and does it.
namespace emm::sim {
namespace {

// Pieces of work of a stream that wait; one more makes the oldest run.
constexpr std::size_t kQueueDepth = 1024;
constexpr std::uint64_t kPatience = 16;  // queries that find work pending before one does work

}  // namespace

// Returns the work that precedes new work on the stream even without an event, since the legacy
// default stream and the blocking streams of a device order each other.
VectorClock Scheduler::before(const Stream& stream) {
  VectorClock before;
  const auto& busy = table_.timeline(stream.device).busy;
  if (!stream.blocking || busy.empty()) return before;
  for (const auto id : busy) {
    const auto& other = *table_.find(id);
    if (id != stream.id && (stream.legacy ? other.blocking : other.legacy))
      before.add({id, other.put});
  }
  return before;
}

// Returns all work that must be done before the stream is done. A wait for the legacy default
// stream includes the blocking streams.
VectorClock Scheduler::all_of(const Stream& stream) {
  auto all = stream.legacy ? before(stream) : VectorClock();
  all.add({stream.id, stream.put});
  return all;
}

std::uint64_t Scheduler::append(Stream& stream, QueuedWork queued, Lock& lock) {
  const auto id = stream.id;
  if (stream.pending.size() >= kQueueDepth) run_to({id, stream.put + 1 - kQueueDepth}, lock);
  if (auto* same = table_.find(id)) push(*same, std::move(queued));
  return id;
}

void Scheduler::push(Stream& stream, QueuedWork queued) {
  queued.after.add(before(stream));
  queued.put_ns = now_ns();
  stream.known.add(queued.after);
  // Finished work needs no order, and would let the clock of a stream that waits often grow without
  // end.
  stream.known.drop_if([&](Point point) { return table_.is_done(point); });
  stream.pending.push_back(std::move(queued));
  ++stream.put;
  table_.note(stream);
  quiet_.store(false, std::memory_order_release);
}

std::optional<Point> Scheduler::first_undone(const VectorClock& clock) {
  for (const auto& point : clock.points()) {
    if (!table_.is_done(point)) return point;
  }
  return std::nullopt;
}

bool Scheduler::is_ready(const Stream& stream) {
  const auto& queued = stream.pending.front();
  return !stream.running && queued.work.kind != Work::Kind::host_function &&
         !first_undone(queued.after);
}

// Does work that nothing waits for yet, as WorkOrder says. Not host functions, which a program may
// not expect before it waits.
void Scheduler::turn(Lock& lock) {
  if (order_ == WorkOrder::late) return;
  for (;;) {
    if (order_ == WorkOrder::random && random_.chance(0.5)) return;
    std::vector<std::uint64_t> ready;
    for (int device = 0; device < table_.devices(); ++device) {
      for (const auto id : table_.timeline(device).busy) {
        if (is_ready(*table_.find(id))) ready.push_back(id);
      }
    }
    if (ready.empty()) return;
    const auto chosen = order_ == WorkOrder::random ? random_.below(ready.size()) : 0;
    run_front(*table_.find(ready[chosen]), lock);
  }
}

bool Scheduler::pass_vain_query(Point point, Lock& lock) {
  if (++vain_queries_ % kPatience != 0) return false;
  run_to(point, lock, true);
  return true;
}

// Goes depth first through the work that each item must follow. That work was put earlier, so there
// is no cycle and the path ends. If another thread runs a stream's first host function, this waits
// for it and then checks the path again, since a reset may have ended streams of it.
void Scheduler::run_to(Point target, Lock& lock, bool one_only) {
  std::vector<Point> path{target};
  while (!path.empty()) {
    const auto next = path.back();
    auto* stream = table_.find(next.stream);
    if (stream == nullptr || stream->done >= next.number) {
      path.pop_back();
    } else if (stream->running) {
      if (one_only) return;
      returned_.wait(lock);
    } else if (const auto undone = first_undone(stream->pending.front().after)) {
      path.push_back(*undone);
    } else {
      run_front(*stream, lock);
      if (one_only) return;
    }
  }
}

std::uint64_t Scheduler::start_of(const Stream& stream) {
  const auto& queued = stream.pending.front();
  auto start_ns = std::max(stream.end_ns, queued.put_ns);
  if (stream.legacy) start_ns = std::max(start_ns, table_.timeline(stream.device).blocking_end_ns);
  for (const auto& point : queued.after.points()) {
    if (const auto* other = table_.find(point.stream)) start_ns = std::max(start_ns, other->end_ns);
  }
  return start_ns;
}

void Scheduler::run_front(Stream& stream, Lock& lock) {
  const auto start_ns = start_of(stream);
  const auto work = stream.pending.front().work;
  if (work.kind != Work::Kind::host_function) {
    end_front(stream, start_ns + perform(platform_, {stream.device, stream.context}, work));
    return;
  }
  const Point point{stream.id, stream.done + 1};
  stream.running = true;
  lock.unlock();
  work.function(work.argument);
  lock.lock();
  // A reset may have ended the stream while the lock was released.
  if (auto* same = table_.find(point.stream)) {
    same->running = false;
    if (same->done + 1 == point.number) end_front(*same, start_ns);
  }
  returned_.notify_all();
}

void Scheduler::end_front(Stream& stream, std::uint64_t end_ns) {
  const auto work = stream.pending.front().work;
  stream.pending.pop_front();
  ++stream.done;
  raise_end(stream, end_ns);
  if (work.kind == Work::Kind::record) {
    auto* event = table_.event(work.event);
    if (event != nullptr && event->point == Point{stream.id, stream.done}) event->end_ns = end_ns;
  }
  table_.note(stream);
}

void Scheduler::raise_end(Stream& stream, std::uint64_t end_ns) {
  auto& timeline = table_.timeline(stream.device);
  stream.end_ns = std::max(stream.end_ns, end_ns);
  timeline.end_ns = std::max(timeline.end_ns, end_ns);
  if (stream.blocking) timeline.blocking_end_ns = std::max(timeline.blocking_end_ns, end_ns);
  if (end_ns > now_ns()) quiet_.store(false, std::memory_order_release);
}

}  // namespace emm::sim
