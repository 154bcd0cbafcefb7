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

/// When work is done that could be done now.
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
/// Order is what CUDA says: a stream's work in turn; after the events that it waits for; blocking
/// streams and the legacy default stream of their device each after what the other was given
/// before. A stream holds 1,024 pieces; one more waits for the first (documented: launches block
/// when the queue is full; the number is a model). Work takes time by latency's model, and a wait
/// advances the clock to its end. A query never waits, but every 16th that finds work pending does
/// one piece of it, so that a program that polls comes to an end.
///
/// Host functions run on the thread that waits for them, with nothing locked; one that calls the
/// driver may deadlock, as with CUDA. They are never run before something waits or asks for them.
///
/// Each answer is a native code. Any thread may call.
class Scheduler {
 public:
  Scheduler(SimPlatform& platform, int devices, WorkOrder order, std::uint64_t seed)
      : platform_(platform), order_(order), random_(seed), table_(devices) {}

  std::uint64_t create_stream(Asker asker, StreamKind kind);
  /// Work that is pending is still done.
  std::int32_t destroy_stream(StreamHandle stream);
  std::uint64_t create_event(Asker asker);
  std::int32_t destroy_event(EventHandle event);

  /// 0, or that there is no such stream.
  std::int32_t check(Asker asker, StreamHandle stream);
  std::int32_t put(Asker asker, StreamHandle stream, const Work& work);
  std::int32_t record(Asker asker, EventHandle event, StreamHandle stream);
  std::int32_t wait_event(Asker asker, StreamHandle stream, EventHandle event);
  /// True: done.
  Answer<bool> query(Asker asker, StreamHandle stream);
  Answer<bool> query(EventHandle event);
  std::int32_t synchronize(Asker asker, StreamHandle stream);
  std::int32_t synchronize(EventHandle event);

  // For pools of memory, which streams hand on to each other.
  /// Where a stream stands: the last piece that it was given.
  Answer<Point> now_on(Asker asker, StreamHandle stream);
  /// The same after a piece that does nothing, where anything is pending: a free is work of its
  /// own.
  Answer<Point> mark(Asker asker, StreamHandle stream);
  /// It is done, and has had its time.
  bool is_over(Point point);
  /// What `stream` is given next comes after `point`, by events.
  bool follows(std::uint64_t stream, Point point);
  /// From here on it does.
  void order(std::uint64_t stream, Point point);

  /// Nothing is pending on any device, and all that was done has had its time.
  bool is_quiet() const noexcept { return quiet_.load(std::memory_order_acquire); }
  /// Waits for all work of a device, or for that before a call that is made on its legacy stream.
  void finish(int device) {
    if (!is_quiet()) finish_lane(device, false);
  }
  void finish_blocking(int device) {
    if (!is_quiet()) finish_lane(device, true);
  }
  /// A reset ends what is pending, undone, and all streams and events.
  void drop(int device);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The mutex is held in all of these; those that take a lock may let go of it for a host function,
  // after which streams and events have to be looked up again.
  Stream* stream_of(Asker asker, StreamHandle handle);
  Frontier before(const Stream& stream);
  Frontier all_of(const Stream& stream);
  std::optional<Point> first_undone(const Frontier& frontier);
  bool is_ready(const Stream& stream);
  std::uint64_t append(Stream& stream, Piece piece, Lock& lock);  // the stream's number
  void push(Stream& stream, Piece piece);  // the same, however many are pending
  void turn(Lock& lock);
  bool pass_vain_query(Point point, Lock& lock);
  void run_to(Point target, Lock& lock, bool one_piece = false);
  void run_front(Stream& stream, Lock& lock);
  std::uint64_t start_of(const Stream& stream);
  void end_front(Stream& stream, std::uint64_t end_ns);
  void raise_end(Stream& stream, std::uint64_t end_ns);
  std::uint64_t now_ns() const noexcept;
  void wait_until(std::uint64_t ns);

  void finish_lane(int device, bool blocking_only);

  SimPlatform& platform_;
  const WorkOrder order_;
  std::mutex mutex_;
  std::condition_variable returned_;  // a host function did
  Prng random_;
  StreamTable table_;
  std::uint64_t vain_queries_ = 0;
  std::atomic<bool> quiet_{true};  // nothing is pending, and all has had its time
};

}  // namespace emm::sim
