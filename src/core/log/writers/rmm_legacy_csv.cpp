#include <optional>
#include <vector>

#include "base/text.hpp"
#include "format/rmm_csv.hpp"
#include "log/digits.hpp"
#include "log/line_log.hpp"
#include "trace/call_site.hpp"

namespace emm::log {
namespace {

namespace rmm = format::rmm;

/// The first word of a frame ("model.py:88" of "model.py:88 forward"), cut to fit an unquoted
/// field.
std::string_view location(std::string_view frame) {
  return frame.substr(0, frame.find_first_of(" ,\"\t\r\n"));
}

class RmmLegacyCsv final : public LineLog {
 public:
  static Result<std::unique_ptr<LogWriter>> make(std::unique_ptr<format::ByteSink> out,
                                                 const trace::Trace& trace, int device,
                                                 const LogOptions&) {
    std::unique_ptr<RmmLegacyCsv> log(new RmmLegacyCsv(std::move(out), trace, device));
    if (auto begun = log->begin(rmm::kLegacyHeader); !begun) return begun.error();
    return log;
  }

 private:
  RmmLegacyCsv(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device)
      : LineLog(std::move(out), trace, device) {}

  /// Writes what std::ostream << const void* writes.
  static char* put_pointer(char* at, std::uint64_t value) noexcept {
    return value == 0 ? put(at, '0') : put_hex(at, value);
  }

  void format(std::string& lines, const Record& record, const Gauges& gauges) override {
    if (!is_rmm_row(record)) return;
    const bool allocates = asks_for_device_memory(record.op);
    if (record.outcome == trace::Outcome::ok) {
      // The gauges count all devices; this column counts only the log's device.
      if (allocates) {
        ++live_;
      } else if (live_ > 0) {
        --live_;
      }
    }
    char line[16 * kNumber];
    auto* at = put(line, rmm::name(allocates ? rmm::LegacyEvent::alloc : rmm::LegacyEvent::free));
    at = put_decimal(put(at, ','), record.device);
    at = put_pointer(put(at, ','), record.pointer);
    at = put_pointer(put(at, ','), trace().stream_number(StreamId{record.stream}));
    at = put_decimal(put(at, ','), record.size);
    at = device_memory_.put_after(at, {gauges.free_bytes, gauges.total_bytes});
    at = put_decimal(put(at, ','), live_);
    at = put_seconds(put(at, ','), record.begin_ns);
    at = put_seconds(put(at, ','), record.end_ns);
    at = put_seconds(put(at, ','), record.end_ns - record.begin_ns);
    lines.append(line, put(at, ','));
    if (record.seq < trace().size()) lines.append(place_of(trace()[record.seq].site));
    lines.push_back('\n');
  }

  /// The place in the program. Its text is built when a call site first occurs.
  std::string_view place_of(SiteId site) {
    if (index(site) >= places_.size()) places_.resize(index(site) + 1);
    auto& place = places_[index(site)];
    if (!place) {
      const auto frames = sites_.shown(trace().site_frames(site));
      place = frames.empty() ? std::string()
                             : text::printable(location(frames.front()), std::string::npos);
    }
    return *place;
  }

  trace::CallSites sites_;
  std::vector<std::optional<std::string>> places_;  // by site

  std::uint64_t live_ = 0;
  SteadyColumns<2> device_memory_;
};

}  // namespace
}  // namespace emm::log

namespace emm {

extern constinit const log::LogEntry rmm_legacy_csv_log{
    "rmm-legacy",
    "RMM's CSV up to 0.14: with device, free and total memory, live count, start, end, location",
    log::RmmLegacyCsv::make};

}  // namespace emm
