#pragma once

#include <cstdint>
#include <deque>

#include "driver/sim/order.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// What a stream is asked to do. A piece that does nothing only waits.
struct Work {
  enum class Kind : std::uint8_t { nothing, fill, copy, host_function, free, record };
  Kind kind = Kind::nothing;
  DevicePtr to{};
  DevicePtr from{};
  std::uint64_t size = 0;
  std::uint32_t value = 0;  ///< Of a fill: repeats every 4 bytes.
  HostFunction function = nullptr;
  void* argument = nullptr;
  EventHandle event{};  ///< Of a record.
};

/// Work in the queue of a stream.
struct Piece {
  Work work;
  Frontier after;  ///< Of other streams.
  std::uint64_t put_ns = 0;
};

/// A queue of work, done in its order. Pieces are numbered from 1: `done` of the `put` ones have
/// been done, the rest is pending.
struct Stream {
  std::uint64_t id = 0;
  int device = 0;
  ContextHandle context;
  bool blocking = true;    ///< The legacy default stream orders with it.
  bool legacy = false;     ///< It is that stream.
  bool destroyed = false;  ///< No handle names it; it lives until its work is done.
  bool running = false;    ///< A thread is in its first piece, with the scheduler unlocked.
  std::deque<Piece> pending;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
  std::uint64_t end_ns = 0;  ///< When what has been done ended, by the model.
  Frontier known;            ///< Of other streams: what its next piece comes after.
};

/// What an event recorded last.
struct Event {
  int device = 0;
  Point point;     ///< Of no stream where it recorded nothing.
  Frontier known;  ///< What the stream knew then.
  std::uint64_t end_ns = 0;
};

}  // namespace emm::sim
