#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "log/writer.hpp"

namespace emm::log {

/// A LogWriter that writes at most one line for each record. Collects lines into large writes.
/// finish() returns the first error of its sink.
class LineLog : public LogWriter {
 public:
  ~LineLog() override { send(); }
  Status finish() final;
  void on_record(const Record& record, const Gauges& gauges) final;

 protected:
  LineLog(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device);

  /// Writes `header` as a line. Must be called once, before any record.
  Status begin(std::string_view header);
  /// Appends the line of `record` to `lines`, with its newline. Appends nothing if the record has
  /// no line.
  virtual void format(std::string& lines, const Record& record, const Gauges& gauges) = 0;

  const trace::Trace& trace() const noexcept { return trace_; }

 private:
  void send();

  std::unique_ptr<format::ByteSink> out_;
  const trace::Trace& trace_;
  int device_;
  std::string lines_;
  Status status_;
};

/// RMM's logs show device memory only. There are rows for memalloc and memallocmanaged, for the
/// frees of their memory (except late ones), and for memory that a reset ends, which is a free
/// there. Nothing else has a row, because RMM's own tools would take it for device memory.
bool is_rmm_row(const Record& record) noexcept;

}  // namespace emm::log
