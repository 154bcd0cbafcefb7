#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/byte_sink.hpp"
#include "format/json_value.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/live_bytes.hpp"
#include "trace/writer.hpp"

namespace emm::libemm {

/// Checks operations given as text against the rules of the format, and writes them as the trace
/// writer does. Any thread.
class TraceFile {
 public:
  /// When this returns, the file contains the header.
  static Result<std::unique_ptr<TraceFile>> open(const char* path, const char* header);

  /// Appends an operation. One without `time_ns` gets the time of this call, where the header says
  /// that the clock is CLOCK_MONOTONIC and when it began. It is in the file when this returns.
  /// Answers invalid_value after append_end()
  /// and close().
  Status append(std::string_view text);
  /// Counts an operation that was not written.
  void lose() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  /// Appends the operation `end`. It states how many operations were written, how many are missing
  /// (`lost` plus those counted by lose()), and what is live.
  Status append_end(std::uint64_t lost);
  Status flush();
  Status close();

 private:
  TraceFile(const char* path, std::unique_ptr<format::ByteSink> sink);
  Status parse(std::string_view text);
  void stamp();

  const std::string name_;
  std::unique_ptr<format::ByteSink> sink_;
  std::unique_ptr<trace::OperationSink> writer_;
  std::mutex mutex_;
  std::unique_ptr<format::JsonBuilder> nodes_;
  trace::OperationReader operations_;
  trace::Operation operation_;
  std::uint64_t line_ = 0, events_ = 0;
  /// When the trace began, if its clock is CLOCK_MONOTONIC.
  std::optional<std::uint64_t> start_ns_;
  bool ended_ = false;  ///< Nothing more is written.
  std::atomic<std::uint64_t> lost_{0};
  trace::LiveBytes live_;
};

}  // namespace emm::libemm
