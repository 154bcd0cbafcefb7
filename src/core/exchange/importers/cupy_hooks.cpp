// The calls of a CuPy memory hook: the program's requests to its pool and the pool's requests to
// the device.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/units.hpp"
#include "exchange/importers/cupy_row.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/json_row.hpp"
#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/stream_name.hpp"
#include "format/json_value.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// Is this the line about the run that may precede the rows: {"cupy": "14.2.0", "limit": 943718400,
/// ...}?
bool is_about_the_run(std::string_view line) {
  return text::trim(line).starts_with('{') && line.find("\"cupy\"") != std::string_view::npos;
}

int sniff_cupy_hooks(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1, [&](std::string_view line) {
    if (is_about_the_run(line)) {
      sure = 90;
      return;
    }
    CupyRow row;
    const auto bad = parse_cupy_row(text::trim(line), "", 1, row);
    if (bad && !*bad) {
      sure = 95;
    } else if (line.find("\"hook\"") != std::string_view::npos ||
               line.find("\"dev_alloc\"") != std::string_view::npos) {
      sure = 60;  // the first row is damaged
    }
  });
  return sure;
}

/// Turns rows into operations. The pool's requests to the device are the backing layer: "s1" and so
/// on. Hooks do not see the pool release memory; it did if the device hands out the same address
/// again.
///
/// CuPy keeps a freed block in the arena of the stream that it was allocated on, whatever stream is
/// current at the free (cupy/cuda/memory.pyx, PooledMemory.free). Therefore a free is on the stream
/// of its memory. A failed request reports a null pointer, and MemoryPool raises only
/// OutOfMemoryError for it.
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
      case CupyAction::source:
        return source(op, row);
      case CupyAction::alloc:
        stream_.put(op, row.stream);
        if (row.pointer == 0 && row.size != 0) {
          ++refused_;
          return pairs_.allocate_failure(op, row.size, Outcome::oom);
        }
        op.granted = row.rounded;
        op.members.add(Member::granted);
        return pairs_.allocate(op, row.pointer, row.size);
      case CupyAction::free:
        return pairs_.free(op, row.pointer);
      case CupyAction::trim:
        ++trims_;
        op.op = Op::mark;
        op.text = "free_all_blocks";
        op.members.add(Member::text);
        run_.used();
        return run_.emit(op);
      case CupyAction::oom:  // the request came before, with a null pointer
        ++errors_;
        run_.used();
        return {};
    }
    return {};
  }

  Result<ImportCounts> finish() {
    run_.note(given_back_,
              "requests to the device were released unseen: their addresses are handed out again");
    run_.note(trims_,
              "calls of free_all_blocks: what the pool released then is not in the recording");
    if (errors_ > refused_)
      run_.note(errors_ - refused_, "out-of-memory errors have no request in the recording");
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
  StreamName stream_;
  std::map<std::uint64_t, Segment> segments_;
  std::uint64_t last_segment_ = 0, given_back_ = 0, trims_ = 0, refused_ = 0, errors_ = 0,
                start_ns_ = 0;
  bool started_ = false;
};

/// Keeps the line about the run in source.options: it has the pool's limit and its final state.
Status describe_run(std::string_view line, ImportRun& run, Header& header) {
  auto said = format::parse_json(without_comma(line), run.source_name(), run.line_number());
  if (!said) return run.refuse(std::move(said).error());
  header.name = text_of(*said, "name");
  if (const auto version = text_of(*said, "cupy"); !version.empty())
    header.framework += ' ' + version;
  header.source_options = text::trim(without_comma(line));
  const auto* const limit = said->find("limit");
  if (const auto bytes = limit != nullptr ? limit->as_u64().value_or(0) : 0; bytes != 0) {
    run.counts().notes.push_back(text::format("the pool was limited to {}", units::bytes(bytes)));
  }
  return {};
}

Result<ImportCounts> read_hooks(format::ByteSource& source, OperationSink& sink,
                                const ImportOptions& options) {
  ImportRun run(source, sink, options);
  auto header = recording_header("CuPy", {"streams", "multi-device"});

  std::string_view line;
  auto more = run.next(line);
  if (!more) return std::move(more).error();
  const bool is_headed = is_about_the_run(line);
  if (is_headed) {
    if (auto described = describe_run(line, run, header); !described)
      return std::move(described).error();
  }
  if (auto begun = run.header(header); !begun) return std::move(begun).error();

  CupyHooks hooks(run);
  CupyRow row;
  const auto parse = [&](std::string_view text) {
    row = {};
    return parse_cupy_row(text, run.source_name(), run.line_number(), row);
  };
  const auto take = [&] { return hooks.row(row); };
  auto read = is_headed ? each_row(run, parse, take) : each_row_from(run, line, parse, take);
  if (!read) return std::move(read).error();
  return hooks.finish();
}

}  // namespace

extern constinit const Importer cupy_hooks_importer{
    .name = "cupy-hooks",
    .summary =
        "events of CuPy's memory hooks: [\"alloc\", pointer, bytes, ...] a line, or "
        "DebugPrintHook's lines",
    .from_documentation = false,
    .sniff = sniff_cupy_hooks,
    .read = read_hooks,
};

}  // namespace emm
