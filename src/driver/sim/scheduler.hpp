#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/prng.hpp"
#include "driver/sim/answer.hpp"
#include "driver/sim/stream_table.hpp"

namespace emm {
class SimPlatform;
}

namespace emm::sim {

/// When the scheduler does work that could be done now.
enum class WorkOrder : std::uint8_t {
  late,    ///< When something waits for it, and not before.
  random,  ///< At any call about streams, by the seed.
  early,   ///< When it is put on its stream; its time still has to pass before it counts as done.
};

/// Who asks: a context of a device.
struct Asker {
  int device = 0;
  ContextHandle context;
};

/// The streams and events of a platform: keeps the work that is put on them pending, and does it in
/// an order that CUDA allows, chosen by WorkOrder and the seed. What is not ordered before a read
/// is, as a rule, not seen by it.
///
/// Order is CUDA's. A stream does its work in turn, after the events that it waits for. A blocking
/// stream and the legacy default stream of its device each do their work after what the other was
/// given before. A stream holds 1,024 items of work; one more waits for the first (documented:
/// launches block when the queue is full; the number is a model). Work takes time by latency's
/// model, and a wait advances the clock to its end. A query never waits, but every 16th that finds
/// work pending does one item of it, so that a program that polls comes to an end.
///
/// Host functions run on the thread that waits for them, with nothing locked. One that calls the
/// driver may deadlock, as with CUDA. None runs before something waits or asks for it.
///
/// Each answer is a native code. Any thread may call.
class Scheduler {
 public:
  Scheduler(SimPlatform& platform, int devices, WorkOrder order, std::uint64_t seed)
      : platform_(platform), order_(order), random_(seed), table_(devices) {}

  std::uint64_t create_stream(Asker asker, StreamKind kind);
  /// Pending work is still done.
  std::int32_t destroy_stream(StreamHandle stream);
  std::uint64_t create_event(Asker asker);
  std::int32_t destroy_event(EventHandle event);

  /// 0, or that there is no such stream.
  std::int32_t check(Asker asker, StreamHandle stream);
  std::int32_t put(Asker asker, StreamHandle stream, const Work& work);
  std::int32_t record(Asker asker, EventHandle event, StreamHandle stream);
  std::int32_t wait_event(Asker asker, StreamHandle stream, EventHandle event);
  /// True: the work is done.
  Answer<bool> query(Asker asker, StreamHandle stream);
  Answer<bool> query(EventHandle event);
  std::int32_t synchronize(Asker asker, StreamHandle stream);
  std::int32_t synchronize(EventHandle event);

  // For pools, whose memory passes from stream to stream.
  /// The last work that the stream was given.
  Answer<Point> now_on(Asker asker, StreamHandle stream);
  /// The same after an empty item of work, where anything is pending: a free is work of its own.
  Answer<Point> mark(Asker asker, StreamHandle stream);
  /// Whether the work is done and has had its time.
  bool is_over(Point point);
  /// Whether events already put the next work of `stream` after `point`.
  bool follows(std::uint64_t stream, Point point);
  /// Puts the next work of `stream` after `point`.
  void order(std::uint64_t stream, Point point);

  /// Nothing is pending on any device, and all that was done has had its time.
  bool is_quiet() const noexcept { return quiet_.load(std::memory_order_acquire); }
  /// Waits for all work of a device, or for that before a call that is made on its legacy stream.
  void finish(int device) {
    if (!is_quiet()) finish_device(device, false);
  }
  void finish_blocking(int device) {
    if (!is_quiet()) finish_device(device, true);
  }
  /// Ends all streams and events of a device, as its reset does. Pending work is never done.
  void drop(int device);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The mutex is held in all of these. Those that take the lock may release it for a host function:
  // another thread may then end a stream or an event, so callers look both up again by their
  // numbers and never keep a pointer across such a call.
  Stream* stream_of(Asker asker, StreamHandle handle);
  VectorClock before(const Stream& stream);
  VectorClock all_of(const Stream& stream);
  std::optional<Point> first_undone(const VectorClock& clock);
  bool is_ready(const Stream& stream);
  std::uint64_t append(Stream& stream, QueuedWork queued, Lock& lock);  // the stream's number
  void push(Stream& stream, QueuedWork queued);  // the same, however many are pending
  void turn(Lock& lock);
  bool pass_vain_query(Point point, Lock& lock);
  void run_to(Point target, Lock& lock, bool one_only = false);
  void run_front(Stream& stream, Lock& lock);
  std::uint64_t start_of(const Stream& stream);
  void end_front(Stream& stream, std::uint64_t end_ns);
  void raise_end(Stream& stream, std::uint64_t end_ns);
  std::uint64_t now_ns() const noexcept;
  void wait_until(std::uint64_t ns);

  void finish_device(int device, bool blocking_only);

  SimPlatform& platform_;
  const WorkOrder order_;
  std::mutex mutex_;
  std::condition_variable returned_;  // a host function returned
  Prng random_;
  StreamTable table_;
  std::uint64_t vain_queries_ = 0;  // those that found work pending
  // Nothing is pending, and all has had its time. Read without the mutex by every synchronous call,
  // so that a program without streams pays one load. It may say false too long, never true too
  // long: push() clears it before put() returns.
  std::atomic<bool> quiet_{true};
};

}  // namespace emm::sim
