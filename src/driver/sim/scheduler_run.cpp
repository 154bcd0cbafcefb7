#include <algorithm>
#include <utility>
#include <vector>

#include "driver/sim/perform.hpp"
#include "driver/sim/scheduler.hpp"
#include "driver/sim/sim_platform.hpp"

// Which work is done next, and what its being done means.
namespace emm::sim {
namespace {

constexpr std::size_t kQueueDepth = 1024;
constexpr std::uint64_t kPatience = 16;

}  // namespace

// What a piece that is put on the stream now comes after, on other streams, without having asked.
Frontier Scheduler::before(const Stream& stream) {
  Frontier before;
  const auto& busy = table_.lane(stream.device).busy;
  if (!stream.blocking || busy.empty()) return before;
  for (const auto id : busy) {
    const auto& other = *table_.find(id);
    if (id != stream.id && (stream.legacy ? other.blocking : other.legacy))
      before.add({id, other.put});
  }
  return before;
}

// All that has to be done for the stream to be done.
Frontier Scheduler::all_of(const Stream& stream) {
  auto all = stream.legacy ? before(stream) : Frontier();
  all.add({stream.id, stream.put});
  return all;
}

std::uint64_t Scheduler::append(Stream& stream, Piece piece, Lock& lock) {
  const auto id = stream.id;
  if (stream.pending.size() >= kQueueDepth) run_to({id, stream.put + 1 - kQueueDepth}, lock);
  if (auto* same = table_.find(id)) push(*same, std::move(piece));
  return id;
}

void Scheduler::push(Stream& stream, Piece piece) {
  piece.after.add(before(stream));
  piece.put_ns = now_ns();
  stream.known.add(piece.after);
  stream.known.drop_if([&](Point point) { return table_.is_done(point); });
  stream.pending.push_back(std::move(piece));
  ++stream.put;
  table_.note(stream);
  quiet_.store(false, std::memory_order_release);
}

std::optional<Point> Scheduler::first_undone(const Frontier& frontier) {
  for (const auto& point : frontier.points()) {
    if (!table_.is_done(point)) return point;
  }
  return std::nullopt;
}

bool Scheduler::is_ready(const Stream& stream) {
  const auto& piece = stream.pending.front();
  return !stream.running && piece.work.kind != Work::Kind::host_function &&
         !first_undone(piece.after);
}

// Work that is done without being waited for.
void Scheduler::turn(Lock& lock) {
  if (order_ == WorkOrder::late) return;
  for (;;) {
    if (order_ == WorkOrder::random && random_.chance(0.5)) return;
    std::vector<std::uint64_t> ready;
    for (int device = 0; device < table_.devices(); ++device) {
      for (const auto id : table_.lane(device).busy) {
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

// Depth first over what each piece comes after, which was put before it, so that this ends.
void Scheduler::run_to(Point target, Lock& lock, bool one_piece) {
  std::vector<Point> path{target};
  while (!path.empty()) {
    const auto next = path.back();
    auto* stream = table_.find(next.stream);
    if (stream == nullptr || stream->done >= next.number) {
      path.pop_back();
    } else if (stream->running) {
      if (one_piece) return;
      returned_.wait(lock);
    } else if (const auto undone = first_undone(stream->pending.front().after)) {
      path.push_back(*undone);
    } else {
      run_front(*stream, lock);
      if (one_piece) return;
    }
  }
}

std::uint64_t Scheduler::start_of(const Stream& stream) {
  const auto& piece = stream.pending.front();
  auto start_ns = std::max(stream.end_ns, piece.put_ns);
  if (stream.legacy) start_ns = std::max(start_ns, table_.lane(stream.device).blocking_end_ns);
  for (const auto& point : piece.after.points()) {
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
  // A reset may have come between.
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
  auto& lane = table_.lane(stream.device);
  stream.end_ns = std::max(stream.end_ns, end_ns);
  lane.end_ns = std::max(lane.end_ns, end_ns);
  if (stream.blocking) lane.blocking_end_ns = std::max(lane.blocking_end_ns, end_ns);
  if (end_ns > now_ns()) quiet_.store(false, std::memory_order_release);
}

}  // namespace emm::sim
