#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "log/writer.hpp"

namespace emm::log {

/// A LogWriter whose every record is one line or none. Gathers lines to large writes, and keeps the
/// first error of its sink for finish().
class LineLog : public LogWriter {
 public:
  ~LineLog() override { send(); }
  Status finish() final;
  void on_record(const Record& record, const Gauges& gauges) final;

 protected:
  LineLog(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device);

  /// Writes the header, a whole line; to be called once, before any record.
  Status begin(std::string_view header);
  /// Adds the line of `record` to `lines`, its end included, if it has one.
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

/// RMM's logs know device memory: rows are for memalloc and memallocmanaged, for the frees of what
/// they made (not for late ones), and for what a reset ends, which is a free there. Host memory,
/// questions and everything else have no row, because RMM's own tools would take them for device
/// memory.
bool is_rmm_row(const Record& record) noexcept;

}  // namespace emm::log
