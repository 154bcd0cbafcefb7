#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "format/byte_sink.hpp"
#include "format/json_writer.hpp"
#include "log/record.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::log {

/// A log file of one format. Writes whole lines. Writes the header line at once, so that a bad path
/// fails early.
class LogWriter : public RecordSink {
 public:
  /// Flushes; io_error if any write failed.
  virtual Status finish() = 0;
};

struct LogOptions {
  /// Local time of day when the run's clock was 0, in nanoseconds since midnight. RMM's log shows
  /// the time of day; on a simulated clock the day begins at 00:00:00.
  std::uint64_t day_ns_at_zero = 0;

  static LogOptions of(const Clock& clock);
};

struct LogEntry {
  std::string_view name;  ///< "rmm", "rmm-legacy", "emm"
  std::string_view summary;
  /// `trace` names ids, threads and streams. `device` >= 0 selects the records of that device. The
  /// trace must outlive the writer, which owns `out`.
  Result<std::unique_ptr<LogWriter>> (*make)(std::unique_ptr<format::ByteSink> out,
                                             const trace::Trace& trace, int device,
                                             const LogOptions& options);
};

std::span<const LogEntry* const> bundled_logs();

/// Opens `path` in format `name`. If the contexts of the trace are on several devices, each device
/// has its own file, with ".devN" before the extension, as with RMM. On standard output, "-", all
/// devices share one log. Usage error for an unknown format.
Result<std::unique_ptr<LogWriter>> open_log(const std::string& path, std::string_view name,
                                            const trace::Trace& trace,
                                            const LogOptions& options = {});

/// The JSON of a replay, "emmctl.replay/1": one object with keys in a fixed order, then a newline.
std::string to_json(const Summary& summary);
/// The text for a person, at most `width` columns. Shows the frames of call stacks that
/// trace::CallSites selects, or all of them with `all_frames`. `blocks` draws curves in block
/// elements, otherwise in ASCII.
std::string to_text(const Summary& summary, int width = 100, bool all_frames = false,
                    bool blocks = false);

/// One failure, as lines that begin "<heading> at event ...", followed by a blank one.
std::string failure_to_text(std::string_view heading, const Failure& failure, int width = 100,
                            bool all_frames = false);

}  // namespace emm::log
