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

/// A log file of one format. Writes whole lines; the header line at once, so that a bad path fails
/// early.
class LogWriter : public RecordSink {
 public:
  /// Flushes; io_error if any write failed.
  virtual Status finish() = 0;
};

struct LogOptions {
  /// Local time of day, in nanoseconds since midnight, when the run's clock was 0. RMM's log shows
  /// the time of day; on a simulated clock the day begins at 00:00:00.
  std::uint64_t day_ns_at_zero = 0;

  static LogOptions of(const Clock& clock);
};

struct LogEntry {
  std::string_view name;  ///< "rmm", "rmm-legacy", "emm"
  std::string_view summary;
  /// `trace` names ids, threads and streams; `device` >= 0 takes only the records of that device.
  /// Both outlive the writer, which owns `out`.
  Result<std::unique_ptr<LogWriter>> (*make)(std::unique_ptr<format::ByteSink> out,
                                             const trace::Trace& trace, int device,
                                             const LogOptions& options);
};

std::span<const LogEntry* const> bundled_logs();

/// Opens `path` in format `name`. Where the contexts of the trace are on several devices, one file
/// a device, ".devN" before the extension, as RMM does; but on standard output, "-", all devices
/// share one log. Usage error for an unknown format.
Result<std::unique_ptr<LogWriter>> open_log(const std::string& path, std::string_view name,
                                            const trace::Trace& trace,
                                            const LogOptions& options = {});

/// The JSON of a replay, "emmctl.replay/1": one object, keys in a fixed order, a final newline.
std::string to_json(const Summary& summary);
/// For a person, at most `width` columns. Of call stacks the frames that trace::CallSites shows, or
/// with `all_frames` all. `blocks`: curves are drawn in block elements, else in ASCII.
std::string to_text(const Summary& summary, int width = 100, bool all_frames = false,
                    bool blocks = false);

/// The statistics of one context, as the JSON has them: "torch", "rmm" and "other", members of an
/// object that is open.
void statistics_to_json(format::JsonWriter& json, const Statistics& statistics);

/// A failure alone, as both have it: a member of an object, null where there is none; and lines
/// that begin "<heading> at event ...", and a blank one.
void failure_to_json(format::JsonWriter& json, std::string_view name,
                     const std::optional<Failure>& failure);
std::string failure_to_text(std::string_view heading, const Failure& failure, int width = 100,
                            bool all_frames = false);

}  // namespace emm::log
