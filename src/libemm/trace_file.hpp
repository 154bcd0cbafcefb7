#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/byte_sink.hpp"
#include "format/json_value.hpp"
#include "trace/operation_reader.hpp"
#include "trace/writer.hpp"

namespace emm::libemm {

/// Reads text that a caller gives by the rules of the format, and writes it as the writer does. Any
/// thread.
class TraceFile {
 public:
  /// The header is in the file when this returns.
  static Result<std::unique_ptr<TraceFile>> open(const char* path, const char* header);

  /// Appends an operation. One without `time_ns` gets the time of this call, where the header says
  /// that the clock is CLOCK_MONOTONIC and when it began. Answers invalid_value after append_end()
  /// and close().
  Status append(std::string_view text);
  /// Counts an operation that has no line.
  void lose() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  /// Appends the operation `end`: how many operations there were, how many have no line (`lost` and
  /// those that lose() counted), and what is alive.
  Status append_end(std::uint64_t lost);
  Status flush();
  Status close();

 private:
  TraceFile(const char* path, std::unique_ptr<format::ByteSink> sink);
  Status parse(std::string_view text);
  void count(const trace::Operation& operation);

  struct Live {
    std::uint64_t size = 0;
    std::string context;
  };
  static std::string name_of(const trace::Id& id);
  void stamp();

  const std::string name_;
  std::unique_ptr<format::ByteSink> sink_;
  std::unique_ptr<trace::OperationSink> writer_;
  std::mutex mutex_;
  std::unique_ptr<format::JsonBuilder> nodes_;
  trace::OperationReader operations_;
  trace::Operation operation_;
  std::uint64_t line_ = 0, events_ = 0;
  std::optional<std::uint64_t>
      start_ns_;        ///< When the trace began, where its clock is CLOCK_MONOTONIC.
  bool ended_ = false;  ///< Nothing more is written.
  std::atomic<std::uint64_t> lost_{0};
  std::map<std::string, Live> live_;
};

}  // namespace emm::libemm
