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

/// When the scheduler does work that is ready.
enum class WorkOrder : std::uint8_t {
  late,    ///< Only when something waits for it.
  random,  ///< At random calls about streams, chosen by the seed.
  early,   ///< When it is put on its stream; it counts as done only after its time has passed.
};

/// The caller: a context of a device.
struct Asker {
  int device = 0;
  ContextHandle context;
};

/// The streams and events of a platform: keeps work on them pending, and does it in an order that
/// CUDA allows, chosen by WorkOrder and the seed. So a read usually does not see work that is not
/// ordered before it.
///
/// Order is CUDA's. A stream does its work in order, after the events that it waits for. A blocking
/// stream and the legacy default stream of its device do their work after the work that the other
/// was given before. A stream holds 1,024 items of work; one more item waits for the first
/// (documented: launches block when the queue is full; the number is a model). Work takes time by
/// the model of latency.hpp, and a wait advances the clock to its end. A query never waits, but
/// every 16th query that finds work pending does one item, so that a polling program ends.
///
/// Host functions run on the thread that waits for them, with no lock held. A host function that
/// calls the driver may deadlock, as in CUDA. None runs before something waits for it or queries
/// it.
///
/// Each answer is a native code. Any thread may call.
class Scheduler {
 public:
  Scheduler(SimPlatform& platform, int devices, WorkOrder order, std::uint64_t seed)
      : platform_(platform), order_(order), random_(seed), table_(devices) {}

  std::uint64_t create_stream(Asker asker, StreamKind kind);
  /// The stream's pending work is still done.
  std::int32_t destroy_stream(StreamHandle stream);
  std::uint64_t create_event(Asker asker);
  std::int32_t destroy_event(EventHandle event);

  /// Returns 0, or the code for an unknown stream.
  std::int32_t check(Asker asker, StreamHandle stream);
  std::int32_t put(Asker asker, StreamHandle stream, const Work& work);
  std::int32_t record(Asker asker, EventHandle event, StreamHandle stream);
  std::int32_t wait_event(Asker asker, StreamHandle stream, EventHandle event);
  /// Answers whether the work is done.
  Answer<bool> query(Asker asker, StreamHandle stream);
  Answer<bool> query(EventHandle event);
  std::int32_t synchronize(Asker asker, StreamHandle stream);
  std::int32_t synchronize(EventHandle event);

  // For pools, whose memory passes from stream to stream.
  /// The last work that was put on the stream.
  Answer<Point> now_on(Asker asker, StreamHandle stream);
  /// If work is pending, puts an empty item on the stream and returns its point, so that a free is
  /// an item of its own.
  Answer<Point> mark(Asker asker, StreamHandle stream);
  /// Answers whether the work is done and its time has passed.
  bool is_over(Point point);
  /// Answers whether events already order the next work of `stream` after `point`.
  bool follows(std::uint64_t stream, Point point);
  /// Orders the next work of `stream` after `point`.
  void order(std::uint64_t stream, Point point);

  /// Answers whether no device has pending work, and the time of all work has passed.
  bool is_quiet() const noexcept { return quiet_.load(std::memory_order_acquire); }
  /// finish() waits for all work of a device; finish_blocking() for the work before a call on its
  /// legacy stream.
  void finish(int device) {
    if (!is_quiet()) finish_device(device, false);
  }
  void finish_blocking(int device) {
    if (!is_quiet()) finish_device(device, true);
  }
  /// Ends all streams and events of a device, as its reset does. Pending work is dropped.
  void drop(int device);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // These hold the mutex. Functions with a Lock parameter may release it for a host function.
  // Another thread may then end a stream or an event, so callers must look both up again by number,
  // and keep no pointer across such a call.
  Stream* stream_of(Asker asker, StreamHandle handle);
  VectorClock before(const Stream& stream);
  VectorClock all_of(const Stream& stream);
  std::optional<Point> first_undone(const VectorClock& clock);
  bool is_ready(const Stream& stream);
  std::uint64_t append(Stream& stream, QueuedWork queued, Lock& lock);  // the stream's number
  void push(Stream& stream, QueuedWork queued);  // ignores the limit of pending work
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
  std::uint64_t vain_queries_ = 0;  // queries that found work pending
  // Nothing is pending, and all time has passed. Every synchronous call reads it without the mutex,
  // so that a program without streams pays one load. It may stay false too long, but never true:
  // push() clears it before put() returns.
  std::atomic<bool> quiet_{true};
};

}  // namespace emm::sim
