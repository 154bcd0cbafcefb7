#pragma once

#include <cstdint>
#include <deque>

#include "driver/sim/vector_clock.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// What a stream is asked to do. Work that does nothing only waits.
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
  VectorClock after;  ///< What has to be done first on other streams.
  std::uint64_t put_ns = 0;
};

/// A queue of work, which is done in its order. Work is numbered from 1. Of the `put` items the
/// first `done` have been done, and the rest is pending.
struct Stream {
  std::uint64_t id = 0;
  int device = 0;
  ContextHandle context;
  bool blocking = true;    ///< The legacy default stream orders with it.
  bool legacy = false;     ///< It is that stream.
  bool destroyed = false;  ///< No handle names it; it lives until its work is done.
  bool running = false;    ///< A thread runs its first work, with the scheduler unlocked.
  std::deque<QueuedWork> pending;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
  std::uint64_t end_ns = 0;  ///< When the work that has been done ended, by the model.
  VectorClock known;         ///< What its next work comes after on other streams.
};

/// What an event recorded last.
struct Event {
  int device = 0;
  Point point;        ///< Stream 0: it recorded nothing.
  VectorClock known;  ///< What the stream knew then.
  std::uint64_t end_ns = 0;
};

}  // namespace emm::sim
