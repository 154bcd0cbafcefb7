#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "log/writer.hpp"

namespace emm::log {

/// A LogWriter whose every record is one line or none. Keeps the first error of its sink for
/// finish().
///
/// A killed run leaves whole lines: Linux may end a write between two pages of a file when its
/// process is killed, so what is written at once is the lines that end in one page, and only the
/// first of them spans two.
class LineLog : public LogWriter {
 public:
  Status finish() final;
  void on_record(const Record& record, const Gauges& gauges) final;

 protected:
  LineLog(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device);

  /// Writes the header, a whole line; to be called once, before any record.
  Status begin(std::string_view header);
  /// Puts the line of `record` into `line`, its end included, or leaves it empty.
  virtual void format(std::string& line, const Record& record, const Gauges& gauges) = 0;

  const trace::Trace& trace() const noexcept { return trace_; }

 private:
  std::unique_ptr<format::ByteSink> out_;
  const trace::Trace& trace_;
  int device_;
  Status put();

  std::string line_;
  std::uint64_t offset_ = 0;  ///< In the file, of what comes next.
  bool paged_;                ///< Not where the file is packed.
  Status status_;
};

/// RMM's logs know device memory: rows are for memalloc and memallocmanaged, for the frees of what
/// they made (not for late ones), and for what a reset ends, which is a free there. Host memory,
/// questions and everything else have no row, because RMM's own tools would take them for device
/// memory.
bool is_rmm_row(const Record& record) noexcept;

}  // namespace emm::log
