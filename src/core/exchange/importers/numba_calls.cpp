// The calls that a program made to Numba's memory manager, as a recorder around the manager wrote
// them.
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/numba_row.hpp"
#include "exchange/importers/numba_session.hpp"

namespace emm {
namespace {

using namespace trace;

constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what sniff() is shown

int sniff_numba_calls(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1, [&](std::string_view line) {
    const auto has = [&](std::string_view member) {
      return line.find(member) != std::string_view::npos;
    };
    const auto all = has("\"op\"") && has("\"seq\"") && has("\"t_ns\"") && has("\"tid\"");
    sure = all && text::trim(line).starts_with('{') ? 95 : 0;
  });
  return sure;
}

/// Reads the first thread and the device's memory from the beginning of the recording.
Header header_of(std::string_view prefix, std::uint64_t& default_thread) {
  auto header = recording_header("numba-cuda", {"ipc", "threads"}, Level::emm);
  auto first = true, sought = true;
  first_lines(prefix, prefix.size(), [&](std::string_view line) {
    NumbaRow row;
    if (!sought) return;
    const auto bad = parse_numba_row(line, "", 1, row);
    sought = bad && !*bad;
    if (!sought) return;
    if (std::exchange(first, false)) {
      default_thread = row.thread;
      header.default_thread = text::format("{}", row.thread);
    }
    if (row.call != NumbaCall::memory_info) return;
    DeviceInfo device;
    device.capacity = row.total;
    device.free_at_start = row.free;
    header.devices = {device};
    sought = false;
  });
  return header;
}

/// Sorts rows by `seq`, since several threads may have written them slightly out of order.
class InOrder {
 public:
  explicit InOrder(ImportRun& run, NumbaSession& session) noexcept : run_(run), session_(session) {}

  Status add(NumbaRow row) {
    const auto seq = row.seq;
    if (seq < next_ || !waiting_.emplace(seq, std::move(row)).second) {
      run_.duplicate();
      return {};
    }
    while (!waiting_.empty() && (waiting_.begin()->first <= first_ ||
                                 waiting_.begin()->first == next_ || waiting_.size() > kWindow)) {
      if (auto taken = take_first(); !taken) return taken;
    }
    return {};
  }
  Status finish() {
    while (!waiting_.empty()) {
      if (auto taken = take_first(); !taken) return taken;
    }
    return {};
  }

 private:
  static constexpr std::size_t kWindow = 1024;  // rows that threads may have written out of order

  Status take_first() {
    const auto first = waiting_.begin();
    next_ = first->first + 1;
    auto taken = session_.row(first->second);
    waiting_.erase(first);
    return taken;
  }

  ImportRun& run_;
  NumbaSession& session_;
  std::map<std::uint64_t, NumbaRow> waiting_;
  std::uint64_t next_ = 0;
  static constexpr std::uint64_t first_ = 1;  // the first seq of a recording
};

Result<ImportCounts> read_calls(format::ByteSource& source, OperationSink& sink,
                                const ImportOptions& options) {
  const auto prefix = source.peek(kPrefixBytes);
  if (!prefix) return prefix.error();
  std::uint64_t default_thread = 0;
  const auto header = header_of(*prefix, default_thread);

  ImportRun run(source, sink, options);
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  NumbaSession session(run, default_thread);
  InOrder rows(run, session);
  NumbaRow row;
  auto read = each_row(
      run,
      [&](std::string_view line) {
        row = {};
        return parse_numba_row(line, run.source_name(), run.line_number(), row);
      },
      [&] { return rows.add(std::move(row)); });
  if (!read) return std::move(read).error();
  if (auto taken = rows.finish(); !taken) return std::move(taken).error();
  return session.finish();
}

}  // namespace

extern constinit const Importer numba_calls_importer{
    .name = "numba-calls",
    .summary = "calls to Numba's memory manager, recorded one JSON line each",
    .from_documentation = false,
    .sniff = sniff_numba_calls,
    .read = read_calls,
};

}  // namespace emm
