// What a memory hook of CuPy was told: the program's requests of its pool, and the pool's of the device.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "trace/importers/cupy_row.hpp"
#include "trace/importers/each_row.hpp"
#include "trace/importers/paired_rows.hpp"

namespace emm {
namespace {

using namespace trace;

int sniff(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1, [&](std::string_view line) {
    CupyRow row;
    const auto bad = parse_cupy_row(text::trim(line), "", 1, row);
    if (bad && !*bad) {
      sure = 95;
    } else if (line.find("\"hook\"") != std::string_view::npos || line.find("\"dev_alloc\"") != std::string_view::npos) {
      sure = 60;  // its first row is damaged
    }
  });
  return sure;
}

/// Rows in, operations out. What a pool asks of the device is the backing layer: "s1" and so on. Hooks are not told
/// when a pool gives memory back; where the device hands the same addresses out again it had.
class CupyHooks {
 public:
  explicit CupyHooks(ImportRun& run) noexcept : run_(run), pairs_(run) {}

  Status row(const CupyRow& row) {
    Operation op;
    if (row.has_time) {
      if (!started_) start_ns_ = row.time_ns;
      op.time_ns = row.time_ns < start_ns_ ? 0 : row.time_ns - start_ns_;
      op.members.add(Member::time_ns);
    }
    started_ = true;
    if (row.device != 0) {
      op.device = row.device;
      op.members.add(Member::device);
    }
    switch (row.action) {
      case CupyAction::source: return source(op, row);
      case CupyAction::alloc:
        op.granted = row.rounded;
        op.members.add(Member::granted);
        return pairs_.allocate(op, row.pointer, row.size);
      case CupyAction::free: return pairs_.free(op, row.pointer);
    }
    return {};
  }

  Result<ImportCounts> finish() {
    run_.note(given_back_, "requests to the device were given back unseen: their addresses are handed out again");
    return pairs_.finish();
  }

 private:
  struct Segment {
    std::uint64_t number;
    std::uint64_t end;
  };

  Status source(Operation& op, const CupyRow& row) {
    op.layer = Layer::backing;
    op.members.add(Member::layer);
    const auto end = row.pointer + std::max(row.rounded, std::uint64_t{1});
    auto at = segments_.lower_bound(row.pointer);
    if (at != segments_.begin() && std::prev(at)->second.end > row.pointer) --at;
    while (at != segments_.end() && at->first < end) {
      ++given_back_;
      auto back = op;
      back.op = Op::free;
      if (auto given = emit(back, at->second.number); !given) return given;
      at = segments_.erase(at);
    }
    segments_[row.pointer] = {.number = ++last_segment_, .end = end};
    op.op = Op::memalloc;
    op.size = row.rounded;
    op.addr = row.pointer;
    op.members.add(Member::size);
    op.members.add(Member::addr);
    run_.used();
    return emit(op, last_segment_);
  }
  Status emit(Operation& op, std::uint64_t segment) {
    const auto name = text::format("s{}", segment);
    op.id = Id{.text = name};
    op.members.add(Member::id);
    return run_.emit(op);
  }

  ImportRun& run_;
  PairedRows pairs_;
  std::map<std::uint64_t, Segment> segments_;
  std::uint64_t last_segment_ = 0, given_back_ = 0, start_ns_ = 0;
  bool started_ = false;
};

Result<ImportCounts> read_hooks(format::ByteSource& source, OperationSink& sink, const ImportOptions& options) {
  ImportRun run(source, sink, options);
  Header header;
  header.requires_ = {"multi-device"};
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  header.framework = "CuPy";
  if (auto begun = run.header(header); !begun) return std::move(begun).error();

  CupyHooks hooks(run);
  CupyRow row;
  auto read = each_row(
      run,
      [&](std::string_view line) {
        row = {};
        return parse_cupy_row(line, run.source_name(), run.line_number(), row);
      },
      [&] { return hooks.row(row); });
  if (!read) return std::move(read).error();
  return hooks.finish();
}

}  // namespace

extern constinit const Importer cupy_hooks_importer{
    .name = "cupy-hooks",
    .summary = "events of CuPy's memory hooks: [\"alloc\", pointer, bytes, ...] a line, or DebugPrintHook's lines",
    .from_documentation = false,
    .sniff = sniff,
    .read = read_hooks,
};

}  // namespace emm
