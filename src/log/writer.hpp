#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "format/byte_sink.hpp"
#include "log/record.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::log {

/// A log file of one format. Writes whole lines; the header line at once, so that a bad path fails early.
class LogWriter : public RecordSink {
 public:
  /// Flushes; io_error if any write failed.
  virtual Status finish() = 0;
};

struct LogEntry {
  std::string_view name;  ///< "rmm", "rmm-legacy", "emm"
  std::string_view summary;
  /// `trace` names ids, threads and streams; `device` >= 0 takes only the records of that device. All outlive it.
  Result<std::unique_ptr<LogWriter>> (*make)(format::ByteSink& out, const trace::Trace& trace, int device);
};

std::span<const LogEntry* const> bundled_logs();

/// Opens `path` in format `name` for a trace on `device_count` devices. With several, one file a device, ".devN"
/// before the extension, as RMM does. Usage error for an unknown format.
Result<std::unique_ptr<LogWriter>> open_log(const std::string& path, std::string_view name, const trace::Trace& trace);

/// The JSON of a replay, "emmctl.replay/1": one object, keys in a fixed order, a final newline.
std::string to_json(const Summary& summary);
/// For a person, at most `width` columns.
std::string to_text(const Summary& summary, int width = 100);

}  // namespace emm::log
