#include <charconv>
#include <vector>

#include "log/line_log.hpp"

namespace emm::log {
namespace {

constexpr std::string_view kHeader =
    "seq,line,repeat,op,of,outcome,late,id,pointer,size,device,context,thread,stream,begin_ns,end_"
    "ns,"
    "live_bytes,live_count,reserved_bytes,free_bytes,total_bytes";

/// RFC 4180: quoted where it must be.
std::string field(std::string value) {
  if (value.find_first_of(",\"\r\n") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"') quoted.push_back('"');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

/// Every column of Record and Gauges. `op` of a free and of what a reset ended is followed by the
/// operation that made it; a field that means nothing is empty.
class EmmCsv final : public LineLog {
 public:
  static Result<std::unique_ptr<LogWriter>> make(std::unique_ptr<format::ByteSink> out,
                                                 const trace::Trace& trace, int device,
                                                 const LogOptions&) {
    std::unique_ptr<EmmCsv> log(new EmmCsv(std::move(out), trace, device));
    if (auto begun = log->begin(kHeader); !begun) return begun.error();
    return log;
  }

 private:
  EmmCsv(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device)
      : LineLog(std::move(out), trace, device) {
    for (const auto& name : trace.threads()) threads_.push_back(field(name));
    for (const auto& name : trace.streams()) streams_.push_back(field(name));
    for (const auto& context : trace.contexts()) contexts_.push_back(field(context.name));
  }

  /// Numbers, each with a comma after it, in one piece.
  static void numbers(std::string& lines, std::initializer_list<std::uint64_t> values) {
    char digits[8 * 21];
    auto* end = digits;
    for (const auto value : values) {
      end = std::to_chars(end, digits + sizeof digits, value).ptr;
      *end++ = ',';
    }
    lines.append(digits, end);
  }
  static void word(std::string& lines, std::string_view value) {
    lines.append(value);
    lines.push_back(',');
  }
  static std::string_view named(const std::vector<std::string>& names, std::size_t at) {
    return at < names.size() ? std::string_view(names[at]) : std::string_view();
  }

  void format(std::string& lines, const Record& record, const Gauges& gauges) override {
    const bool of_memory = record.id != kNoId;
    const bool ends = of_memory && (record.op == trace::Op::free || record.op == trace::Op::reset ||
                                    record.op == trace::Op::context_destroy ||
                                    record.op == trace::Op::close_ipc_handle);
    numbers(lines, {record.seq, record.seq < trace().size() ? trace()[record.seq].line : 0,
                    record.repeat});
    word(lines, name(record.op));
    word(lines, ends ? name(record.freed_kind) : std::string_view());
    word(lines, name(record.outcome));
    word(lines, record.late ? "late" : "");
    if (of_memory) {
      word(lines, field(trace().name(AllocId{static_cast<std::uint32_t>(record.id)})));
      char hex[19] = "0x";
      lines.append(hex, std::to_chars(hex + 2, hex + sizeof hex, record.pointer, 16).ptr);
      lines.push_back(',');
      numbers(lines, {record.size, record.device});
    } else {
      lines.append(",,,");
      numbers(lines, {record.device});
    }
    word(lines, named(contexts_, record.context));
    word(lines, named(threads_, record.thread));
    word(lines, named(streams_, record.stream));
    numbers(lines, {record.begin_ns, record.end_ns, gauges.live_bytes, gauges.live_count,
                    gauges.reserved_bytes, gauges.free_bytes, gauges.total_bytes});
    lines.back() = '\n';
  }

  std::vector<std::string> threads_, streams_, contexts_;
};

}  // namespace
}  // namespace emm::log

namespace emm {

extern constinit const log::LogEntry emm_log{
    "emm", "CSV with a row for each operation and a column for everything known of it",
    log::EmmCsv::make};

}  // namespace emm
