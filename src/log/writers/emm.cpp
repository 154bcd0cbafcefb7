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
std::string field(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(value);
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

  static void number(std::string& line, std::uint64_t value, int base = 10) {
    char digits[24];
    line.append(digits, std::to_chars(digits, digits + sizeof digits, value, base).ptr);
    line.push_back(',');
  }
  static void word(std::string& line, std::string_view value) {
    line.append(value);
    line.push_back(',');
  }
  static std::string_view named(const std::vector<std::string>& names, std::size_t at) {
    return at < names.size() ? std::string_view(names[at]) : std::string_view();
  }

  void format(std::string& line, const Record& record, const Gauges& gauges) override {
    const bool of_memory = record.id != kNoId;
    const bool ends = of_memory && (record.op == trace::Op::free || record.op == trace::Op::reset ||
                                    record.op == trace::Op::context_destroy ||
                                    record.op == trace::Op::close_ipc_handle);
    number(line, record.seq);
    number(line, record.seq < trace().size() ? trace()[record.seq].line : 0);
    number(line, record.repeat);
    word(line, name(record.op));
    word(line, ends ? name(record.freed_kind) : std::string_view());
    word(line, name(record.outcome));
    word(line, record.late ? "late" : "");
    word(line, of_memory ? field(trace().name(AllocId{static_cast<std::uint32_t>(record.id)}))
                         : std::string());
    if (of_memory) {
      line.append("0x");
      number(line, record.pointer, 16);
      number(line, record.size);
    } else {
      line.append(",,");
    }
    number(line, record.device);
    word(line, named(contexts_, record.context));
    word(line, named(threads_, record.thread));
    word(line, named(streams_, record.stream));
    number(line, record.begin_ns);
    number(line, record.end_ns);
    number(line, gauges.live_bytes);
    number(line, gauges.live_count);
    number(line, gauges.reserved_bytes);
    number(line, gauges.free_bytes);
    number(line, gauges.total_bytes);
    line.back() = '\n';
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
