#pragma once

#include <cstdint>
#include <string_view>

#include "trace/op.hpp"

namespace emm::log {

inline constexpr std::uint64_t kNoId = ~std::uint64_t{0};

/// The result of one operation of a replay, in 64 bytes. Only the engine makes records.
///
/// A reset, and the end of a context, has a record for each allocation that it ends, with its op
/// and the id of the allocation, and then its own record, which has no id. Between the passes of a
/// repeated replay, memory that is still alive is freed: such a record of `free` has a seq behind
/// the trace.
struct Record {
  std::uint64_t seq = 0;       ///< Index of the event in the trace, from 0.
  std::uint64_t begin_ns = 0;  ///< On the run's clock.
  std::uint64_t end_ns = 0;
  std::uint64_t pointer = 0;  ///< As logs show it; 0 where the operation failed or has none.
  std::uint64_t size = 0;     ///< Requested, bytes.
  std::uint64_t id = kNoId;   ///< AllocId; kNoId where the operation names no memory.
  std::uint32_t thread = 0;   ///< As the trace numbers it.
  std::uint16_t stream = 0;   ///< StreamId.
  std::uint8_t context = 0;
  trace::Op op = trace::Op::initialize;
  trace::Op freed_kind = trace::Op::memalloc;  ///< For a free, the operation that made the memory.
  trace::Outcome outcome = trace::Outcome::ok;
  std::uint8_t device = 0;
  std::uint8_t repeat = 0;  ///< Pass, from 0; the last 255 where there are more.
  bool late = false;        ///< A free of memory that a reset had ended before.
};
static_assert(sizeof(Record) == 64);

/// The state after an event, in bytes, for the log formats that have columns for it. The device is
/// that of the event's context.
struct Gauges {
  std::uint64_t live_bytes = 0;  ///< Device and managed memory, like live_count.
  std::uint64_t live_count = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t free_bytes = 0;  ///< 0 where it is not known.
  std::uint64_t total_bytes = 0;
};

/// Takes the records of a run in order. One thread at a time.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void on_record(const Record& record, const Gauges& gauges) = 0;
};

}  // namespace emm::log
