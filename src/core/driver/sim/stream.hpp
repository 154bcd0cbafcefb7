#pragma once

#include <cstdint>
#include <deque>

#include "driver/sim/vector_clock.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// An item of work for a stream. Work that does nothing only waits.
struct Work {
  enum class Kind : std::uint8_t { nothing, fill, copy, host_function, free, record };
  Kind kind = Kind::nothing;
  DevicePtr to{};
  DevicePtr from{};
  std::uint64_t size = 0;
  std::uint32_t value = 0;  ///< A fill repeats it every 4 bytes.
  HostFunction function = nullptr;
  void* argument = nullptr;
  EventHandle event{};  ///< The event that a record records.
};

/// Work in the queue of a stream.
struct QueuedWork {
  Work work;
  VectorClock after;  ///< Work on other streams that must be done first.
  std::uint64_t put_ns = 0;
};

/// A queue of work that is done in order. Work is numbered from 1. Of `put` items the first `done`
/// are done, and the rest is pending.
struct Stream {
  std::uint64_t id = 0;
  int device = 0;
  ContextHandle context;
  bool blocking = true;    ///< It and the legacy default stream order each other.
  bool legacy = false;     ///< It is the legacy default stream.
  bool destroyed = false;  ///< It has no handle any more, and lives until its work is done.
  bool running = false;    ///< A thread runs its first work, with the scheduler unlocked.
  std::deque<QueuedWork> pending;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
  std::uint64_t end_ns = 0;  ///< When the work done so far ended, by the model.
  VectorClock known;         ///< Work on other streams that its next work must follow.
};

/// The last record of an event.
struct Event {
  int device = 0;
  Point point;        ///< Stream 0 if it has recorded nothing.
  VectorClock known;  ///< `known` of the stream at that moment.
  std::uint64_t end_ns = 0;
};

}  // namespace emm::sim
