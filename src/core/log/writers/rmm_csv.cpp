#include "format/rmm_csv.hpp"

#include "log/line_log.hpp"

namespace emm::log {
namespace {

namespace rmm = format::rmm;

class RmmCsv final : public LineLog {
 public:
  static Result<std::unique_ptr<LogWriter>> make(std::unique_ptr<format::ByteSink> out,
                                                 const trace::Trace& trace, int device,
                                                 const LogOptions& options) {
    std::unique_ptr<RmmCsv> log(new RmmCsv(std::move(out), trace, device, options));
    if (auto begun = log->begin(rmm::kHeader); !begun) return begun.error();
    return log;
  }

 private:
  RmmCsv(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device,
         const LogOptions& options)
      : LineLog(std::move(out), trace, device), day_ns_at_zero_(options.day_ns_at_zero) {}

  void format(std::string& lines, const Record& record, const Gauges&) override {
    if (!is_rmm_row(record)) return;
    const bool allocates = asks_for_device_memory(record.op);
    const bool worked = record.outcome == trace::Outcome::ok;
    // RMM logs an allocation after its upstream answered, and a free before it calls the upstream.
    const auto at_ns = allocates ? record.end_ns : record.begin_ns;
    rmm::append(
        lines,
        {.thread = trace().thread_number(ThreadId{static_cast<std::uint16_t>(record.thread)}),
         .time_ns = (day_ns_at_zero_ + at_ns) % rmm::kDayNs,
         .action = !allocates ? rmm::Action::free
                   : worked   ? rmm::Action::allocate
                              : rmm::Action::allocate_failure,
         .pointer = record.pointer,
         .size = record.size,
         .stream = trace().stream_number(StreamId{record.stream})});
  }

  std::uint64_t day_ns_at_zero_;
};

}  // namespace
}  // namespace emm::log

namespace emm {

extern constinit const log::LogEntry rmm_csv_log{
    "rmm", "RMM's CSV: thread, time, action, pointer, size, stream of device memory",
    log::RmmCsv::make};

}  // namespace emm
