#include <array>
#include <vector>

#include "log/digits.hpp"
#include "log/line_log.hpp"

namespace emm::log {
namespace {

constexpr std::string_view kHeader =
    "seq,line,repeat,op,of,outcome,late,id,pointer,size,device,context,thread,stream,begin_ns,end_"
    "ns,"
    "live_bytes,live_count,reserved_bytes,free_bytes,total_bytes";

/// Quotes a value if RFC 4180 requires it.
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

/// Every column of Record and Gauges. The column after `op` names the operation that made the
/// memory, for a free and for what a reset ended. A field without a meaning is empty.
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

  static constexpr std::size_t kColumns = 16;        // more than there are numbers
  inline static const std::string kNoMemory = ",,";  // no id, no pointer

  static std::string_view named(const std::vector<std::string>& names, std::size_t at) {
    return at < names.size() ? std::string_view(names[at]) : std::string_view();
  }

  // Caches of text that consecutive lines share: the words of each operation, the id, and the names
  // of context, thread and stream. Each is rebuilt only if it differs from the previous line.

  struct Words {
    bool ends = false;
    bool late = false;
    trace::Op freed_kind{};
    trace::Outcome outcome{};
    std::size_t size = 0;
    char text[64]{};  // the longest words take 53
  };
  const Words& words_of(const Record& record, bool ends) {
    auto& words = words_[static_cast<std::size_t>(record.op)];
    if (words.size == 0 || words.ends != ends || words.freed_kind != record.freed_kind ||
        words.outcome != record.outcome || words.late != record.late) {
      words = {ends, record.late, record.freed_kind, record.outcome};
      auto* at = words.text;
      for (const auto word : {name(record.op), ends ? name(record.freed_kind) : std::string_view(),
                              name(record.outcome), std::string_view(record.late ? "late" : "")}) {
        at = put(put(at, word), ',');
      }
      words.size = static_cast<std::size_t>(at - words.text);
    }
    return words;
  }
  const std::string& id_of(std::uint64_t of) {
    if (of != named_id_) id_ = field(trace().name(AllocId{static_cast<std::uint32_t>(of)})) + ',';
    named_id_ = of;
    return id_;
  }
  const std::string& place_of(const Record& record) {
    if (place_.empty() || place_context_ != record.context || place_thread_ != record.thread ||
        place_stream_ != record.stream) {
      place_context_ = record.context;
      place_thread_ = record.thread;
      place_stream_ = record.stream;
      place_.clear();
      place_.append(named(contexts_, record.context)).push_back(',');
      place_.append(named(threads_, record.thread)).push_back(',');
      place_.append(named(streams_, record.stream)).push_back(',');
    }
    return place_;
  }

  void format(std::string& lines, const Record& record, const Gauges& gauges) override {
    const bool of_memory = record.id != kNoId;
    const bool ends = of_memory && (record.op == trace::Op::free || record.op == trace::Op::reset ||
                                    record.op == trace::Op::context_destroy ||
                                    record.op == trace::Op::close_ipc_handle);
    const auto& words = words_of(record, ends);
    const auto& id = of_memory ? id_of(record.id) : kNoMemory;
    const auto& place = place_of(record);
    const auto room = kColumns * kNumber + sizeof words.text + id.size() + place.size();
    if (line_.size() < room) line_.resize(room);

    auto* at = put_decimal(line_.data(), record.seq);
    at = put_decimal(put(at, ','),
                     record.seq < trace().size() ? trace()[record.seq].line : std::uint64_t{0});
    at = put_decimal(put(at, ','), record.repeat);
    at = put(at, ',');
    std::memcpy(at, words.text, sizeof words.text);
    at = put(at + words.size, id);
    if (of_memory) at = put_decimal(put(put_hex(at, record.pointer), ','), record.size);
    at = put(put_decimal(put(at, ','), record.device), ',');
    at = put_decimal(put(at, place), record.begin_ns);
    at = put_decimal(put(at, ','), record.end_ns);
    at = put_decimal(put(at, ','), gauges.live_bytes);
    at = put_decimal(put(at, ','), gauges.live_count);
    at = device_memory_.put_after(at,
                                  {gauges.reserved_bytes, gauges.free_bytes, gauges.total_bytes});
    lines.append(line_.data(), put(at, '\n'));
  }

  std::vector<std::string> threads_, streams_, contexts_;
  std::vector<char> line_;
  std::array<Words, trace::kOpCount> words_;
  std::string id_;
  std::uint64_t named_id_ = kNoId;
  SteadyColumns<3> device_memory_;
  std::string place_;
  std::uint32_t place_thread_ = 0;
  std::uint16_t place_stream_ = 0;
  std::uint8_t place_context_ = 0;
};

}  // namespace
}  // namespace emm::log

namespace emm {

extern constinit const log::LogEntry emm_log{
    "emm", "CSV with a row for each operation and a column for everything known of it",
    log::EmmCsv::make};

}  // namespace emm
