#pragma once

#include <cstdint>
#include <string_view>

#include "trace/op.hpp"

namespace emm::log {

/// What became of one operation of a replay. 64 bytes; made by the engine and by nothing else.
struct Record {
  std::uint64_t seq = 0;           ///< Index of the event in the trace, from 0.
  std::uint64_t begin_ns = 0;      ///< On the run's clock.
  std::uint64_t end_ns = 0;
  std::uint64_t pointer = 0;       ///< As logs show it; 0 of what failed or has none.
  std::uint64_t size = 0;          ///< Requested, bytes.
  std::uint64_t id = 0;            ///< AllocId.
  std::uint32_t thread = 0;        ///< As the trace numbers it.
  std::uint16_t stream = 0;        ///< StreamId.
  std::uint8_t context = 0;
  trace::Op op = trace::Op::initialize;
  trace::Op freed_kind = trace::Op::memalloc;  ///< Of free: the operation that made what ended.
  trace::Outcome outcome = trace::Outcome::ok;
  std::uint8_t device = 0;
  std::uint8_t repeat = 0;
};

/// State after an event, for the log formats that have columns for it. Bytes.
struct Gauges {
  std::uint64_t live_bytes = 0;
  std::uint64_t live_count = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t free_bytes = 0;    ///< Of the device; 0 where not known.
  std::uint64_t total_bytes = 0;
};

/// Takes the records of a run in order. One thread at a time.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void on_record(const Record& record, const Gauges& gauges) = 0;
};

}  // namespace emm::log
