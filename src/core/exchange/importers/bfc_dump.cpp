// The dump of chunks that a BFC allocator of TensorFlow, XLA or ONNX Runtime writes into the log
// when it runs out of memory: a state without history, and the request that failed.
#include "format/bfc_dump.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_format.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/import_run.hpp"
#include "format/json_writer.hpp"
#include "format/log_line.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

using BfcRow = format::BfcLine;

std::optional<BfcRow> bfc_row(std::string_view line) {
  return format::parse_bfc_line(format::without_prefix(line).text);
}

int sniff_bfc_dump(std::string_view prefix) {
  constexpr std::size_t kLines = 2000;  // a program's log has other lines before the dump
  std::size_t chunks = 0, others = 0;
  first_lines(prefix, kLines, [&](std::string_view text) {
    const auto row = bfc_row(text);
    if (!row) return;
    ++(row->what == BfcRow::Meaning::chunk ? chunks : others);
  });
  return chunks > 0 ? 90 : others > 1 ? 30 : 0;
}

/// Gathers the first dump of a log.
class BfcDump {
 public:
  explicit BfcDump(ImportRun& run) noexcept : run_(run) {}

  void row(const std::optional<BfcRow>& row) {
    using enum BfcRow::Meaning;
    if (!row || is_over(*row)) {
      run_.other();
      return;
    }
    const auto line = static_cast<std::uint32_t>(run_.line_number());
    switch (row->what) {
      case request:
        request_ = {.address = 0, .size = row->size, .line = line, .is_free = false};
        allocator_ = row->allocator;
        break;
      case region:
        is_new_region_ = true;
        break;
      case chunk: {
        const auto end = chunks_.empty() ? 0 : chunks_.back().address + chunks_.back().size;
        if (is_new_region_ || chunks_.empty() || row->address != end)
          regions_.push_back({.address = row->address, .size = 0, .line = line, .is_free = false});
        is_new_region_ = false;
        regions_.back().size += row->size;
        chunks_.push_back(
            {.address = row->address, .size = row->size, .line = line, .is_free = row->is_free});
        break;
      }
      case limit:
        limit_ = row->size;
        break;
      case in_use:
      case peak:
      case bin:
        run_.other();
        return;
    }
    run_.used();
  }

  Result<ImportCounts> finish() {
    if (chunks_.empty()) {
      return fail(Errc::parse_error,
                  "{}: the log has no chunks of a BFC allocator: expected lines such as \"InUse at "
                  "7f0000000000 of size 1024\", which come with TF_CPP_MIN_LOG_LEVEL=0",
                  run_.source_name());
    }
    if (auto begun = run_.header(header()); !begun) return std::move(begun).error();
    std::uint64_t number = 0, live = 0;
    ByteSum bytes;
    for (const auto& region : regions_) {
      const auto name = text::format("s{}", ++number);
      Operation made = before(region);
      made.layer = Layer::backing;
      made.id = Id::of(name);
      made.members.add(Member::layer);
      if (auto given = run_.emit(made); !given) return std::move(given).error();
    }
    for (const auto& each : chunks_) {
      if (each.is_free) continue;
      Operation made = before(each);
      made.id = Id::of(run_.next_id());
      if (auto given = run_.emit(made); !given) return std::move(given).error();
      ++live;
      bytes.add(each.size);
    }
    if (request_ && request_->size > 0) {
      Operation made{.op = Op::memalloc,
                     .members = Members(Member::id, Member::size, Member::result),
                     .line = request_->line};
      made.id = Id::of(run_.next_id());
      made.size = request_->size;
      made.result.outcome = Outcome::oom;
      if (auto given = run_.emit(made); !given) return std::move(given).error();
    }
    run_.note(more_dumps_, "more dumps are in the log, which are not read");
    run_.counts().notes.emplace_back(
        "the dump has the chunks as the allocator rounds them, and no event before: a state "
        "without "
        "history");
    if (limit_ && *limit_ >> 62 == 0) {
      run_.counts().notes.push_back(text::format(
          "the limit of the allocator, {} bytes, is taken as what the device has", *limit_));
    }
    return run_.finish(live, bytes);
  }

 private:
  struct Memory {
    std::uint64_t address, size;
    std::uint32_t line;
    bool is_free;
  };

  /// The first dump ends with its statistics, or where the next one begins.
  bool is_over(const BfcRow& row) {
    using enum BfcRow::Meaning;
    const bool begins = row.what == request || row.what == chunk || row.what == region;
    if (!is_over_ && begins && !chunks_.empty() && (row.what == request || limit_)) {
      is_over_ = true;
      in_chunks_ = false;
    }
    if (!is_over_) return false;
    if (row.what == chunk && !in_chunks_) ++more_dumps_;
    in_chunks_ = row.what == chunk || (in_chunks_ && row.what == region);
    return true;
  }

  static Operation before(const Memory& memory) {
    Operation made{.op = Op::memalloc,
                   .members = Members(Member::id, Member::size, Member::addr, Member::preexisting),
                   .line = memory.line};
    made.size = memory.size;
    made.addr = memory.address;
    made.preexisting = true;
    return made;
  }

  Header header() const {
    auto header = recording_header("bfc", {});
    header.complete = false;
    header.has_complete = true;
    DeviceInfo info;
    if (limit_ && *limit_ >> 62 == 0) info.capacity = *limit_;
    header.devices.push_back(info);
    format::JsonWriter json(header.source_options);
    json.begin_object().member("allocator", allocator_).member("limit", limit_).end_object();
    return header;
  }

  ImportRun& run_;
  std::vector<Memory> chunks_, regions_;
  std::optional<Memory> request_;
  std::optional<std::uint64_t> limit_;
  std::string allocator_;
  std::uint64_t more_dumps_ = 0;
  bool is_new_region_ = false, is_over_ = false, in_chunks_ = false;
};

Result<ImportCounts> read_bfc_dump(format::ByteSource& source, OperationSink& sink,
                                   const ImportOptions& options) {
  ImportRun run(source, sink, options);
  BfcDump dump(run);
  std::optional<BfcRow> row;
  auto read = each_row(
      run,
      [&](std::string_view text) -> Result<std::optional<BadField>> {
        row = bfc_row(text);
        return std::optional<BadField>{};
      },
      [&]() -> Status {
        dump.row(row);
        return {};
      });
  if (!read) return std::move(read).error();
  return dump.finish();
}

}  // namespace

extern constinit const Importer bfc_dump_importer{
    .name = "bfc-dump",
    .summary = "the chunks that TensorFlow, XLA and ONNX Runtime log as they run out of memory",
    .from_documentation = false,
    .sniff = sniff_bfc_dump,
    .read = read_bfc_dump,
    .is_also_log = true,
};

}  // namespace emm
