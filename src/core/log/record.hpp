#pragma once

#include <cstdint>
#include <string_view>

#include "trace/op.hpp"

namespace emm::log {

inline constexpr std::uint64_t kNoId = ~std::uint64_t{0};  // a record without an allocation

/// The result of one operation of a replay, in 64 bytes. Only the engine makes records.
///
/// A reset makes a record for each allocation that it ends, with the reset's op and the
/// allocation's id, and then its own record without an id. The end of a context does the same.
/// Between the passes of a repeated replay the engine frees the memory that is still live: such a
/// record of `free` has a seq past the end of the trace.
struct Record {
  std::uint64_t seq = 0;       ///< Index of the event in the trace, from 0.
  std::uint64_t begin_ns = 0;  ///< On the run's clock.
  std::uint64_t end_ns = 0;
  std::uint64_t pointer = 0;  ///< As logs show it. 0 if the operation failed or has none.
  std::uint64_t size = 0;     ///< Requested bytes.
  std::uint64_t id = kNoId;   ///< AllocId; kNoId if the operation names no memory.
  std::uint32_t thread = 0;   ///< The trace's number for it.
  std::uint16_t stream = 0;   ///< StreamId.
  std::uint8_t context = 0;
  trace::Op op = trace::Op::initialize;
  trace::Op freed_kind = trace::Op::memalloc;  ///< For a free: the operation that made the memory.
  trace::Outcome outcome = trace::Outcome::ok;
  std::uint8_t device = 0;
  std::uint8_t repeat = 0;  ///< Pass, from 0. 255 for all later ones.
  bool late = false;        ///< A free of memory that a reset had already ended.
};
static_assert(sizeof(Record) == 64);

/// The state after an event, in bytes, for the log formats that have columns for it. It is that of
/// the device of the event's context.
struct Gauges {
  std::uint64_t live_bytes = 0;  ///< In device and managed memory, like live_count.
  std::uint64_t live_count = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t free_bytes = 0;  ///< 0 if not known.
  std::uint64_t total_bytes = 0;
};

/// Takes the records of a run in order. One thread at a time.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void on_record(const Record& record, const Gauges& gauges) = 0;
};

}  // namespace emm::log
