// The output of rmm.csv_log(), until 0.14.
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "exchange/importers/each_row.hpp"
#include "exchange/importers/live_table.hpp"
#include "exchange/importers/rmm_rows.hpp"
#include "exchange/importers/stream_name.hpp"
#include "format/rmm_csv_reader.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;
namespace rmm = format::rmm;

int sniff_rmm_legacy_csv(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1,
              [&](std::string_view line) { sure = rmm::legacy_dialect_of(line) ? 100 : 0; });
  return sure;
}

std::uint64_t ns(double seconds) { return static_cast<std::uint64_t>(std::llround(seconds * 1e9)); }

/// Turns rows into operations.
class LegacyLog {
 public:
  explicit LegacyLog(ImportRun& run) noexcept : run_(run) {}

  Status row(const rmm::LegacyRow& row) {
    if (auto defined = define_site(row.location); !defined) return defined;
    switch (row.event) {
      case rmm::LegacyEvent::alloc:
        return alloc(row);
      case rmm::LegacyEvent::realloc:
        return realloc(row);
      case rmm::LegacyEvent::free:
        return free(row);
    }
    return {};
  }

  Result<ImportCounts> finish() {
    run_.note(null_, "rows allocate or free nothing, at a null pointer");
    run_.note(live_again_, "rows allocate at an address that is live");
    run_.note(moved_, "rows are a Realloc that moved: the log does not say what ended there");
    return run_.finish(book_.count(), book_.bytes());
  }

 private:
  /// Defines a site before its first use, once.
  Status define_site(std::string_view location) {
    if (location.empty() || sites_.find(location) != sites_.end()) return {};
    sites_.emplace(location, sites_.size() + 1);
    Operation define{.op = Op::define,
                     .members = Members(Member::kind, Member::id, Member::frames)};
    define.define_kind = DefineKind::site;
    define.id = Id::of(sites_.size());
    const std::string_view frames[] = {location};
    define.frames = frames;
    return run_.emit(define);
  }

  Operation common(const rmm::LegacyRow& row) {
    Operation op{.members = Members(Member::time_ns, Member::duration_ns)};
    op.time_ns = ns(row.start_s);
    op.duration_ns = ns(row.elapsed_s);
    if (row.device != 0) {
      op.device = row.device;
      op.members.add(Member::device);
    }
    stream_.put(op, row.stream);
    if (!row.location.empty()) {
      op.site = Id::of(sites_.find(row.location)->second);
      op.members.add(Member::site);
    }
    return op;
  }

  Status alloc(const rmm::LegacyRow& row) {
    if (row.address == 0 && row.size == 0) return nothing();
    if (row.address != 0 && book_.has(row.address)) {
      ++live_again_;
      run_.duplicate();
      return {};
    }
    run_.used();
    return make(row);
  }

  /// The row names only the resulting block. A block that was live at its address ends. If none
  /// was, the block moved and the log does not say from where.
  Status realloc(const rmm::LegacyRow& row) {
    if (row.address == 0 && row.size == 0) return nothing();
    run_.used();
    if (const auto ended = book_.remove(row.address)) {
      if (auto given = end(row, ended->id); !given) return given;
    } else {
      ++moved_;
    }
    return make(row);
  }

  Status free(const rmm::LegacyRow& row) {
    if (row.address == 0) return nothing();
    const auto ended = book_.remove(row.address);
    if (!ended) {
      run_.unmatched();
      return {};
    }
    run_.used();
    return end(row, ended->id);
  }

  Status make(const rmm::LegacyRow& row) {
    auto op = common(row);
    op.op = Op::memalloc;
    op.id = Id::of(run_.next_id());
    op.size = row.size;
    op.members.add(Member::id);
    op.members.add(Member::size);
    if (row.address == 0) {
      op.result.outcome = Outcome::error;  // the log does not tell which error
      op.members.add(Member::result);
    } else {
      op.addr = row.address;
      op.members.add(Member::addr);
      book_.add(row.address, {.id = op.id.number, .size = row.size});
    }
    return run_.emit(op);
  }
  Status end(const rmm::LegacyRow& row, std::uint64_t id) {
    auto op = common(row);
    op.op = Op::free;
    op.id = Id::of(id);
    op.members.add(Member::id);
    return run_.emit(op);
  }
  Status nothing() {
    ++null_;
    run_.other();
    return {};
  }

  ImportRun& run_;
  LiveTable book_;
  StreamName stream_;
  std::map<std::string, std::uint64_t, std::less<>> sites_;
  std::uint64_t null_ = 0, live_again_ = 0, moved_ = 0;
};

/// The device of the first row. Its capacity is unknown if the manager did not ask the device.
DeviceInfo first_device(std::string_view prefix) {
  std::optional<rmm::Dialect> dialect;
  DeviceInfo device;
  first_lines(prefix, 2, [&](std::string_view line) {
    rmm::LegacyRow row;
    if (!dialect) {
      dialect = rmm::legacy_dialect_of(line);
    } else if (!rmm::parse(line, *dialect, row)) {
      device.id = row.device;
      device.capacity = row.total;
    }
  });
  return device;
}

Result<ImportCounts> read_legacy_log(format::ByteSource& source, OperationSink& sink,
                                     const ImportOptions& options) {
  auto prefix = source.peek(std::size_t{64} << 10);
  if (!prefix) return std::move(prefix).error();
  auto header = recording_header("RMM", {"streams", "multi-device"});
  if (auto device = first_device(*prefix); device.capacity != 0) header.devices = {device};

  ImportRun run(source, sink, options);
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  LegacyLog log(run);
  auto dialect = *rmm::legacy_dialect_of(rmm::kLegacyHeader);
  rmm::LegacyRow row;
  for (;;) {
    auto more = next_rmm_row(run, rmm::legacy_dialect_of, dialect, row);
    if (!more) return std::move(more).error();
    if (!*more) break;
    if (auto taken = log.row(row); !taken) return std::move(taken).error();
  }
  run.note_columns(dialect.layout.others());
  return log.finish();
}

}  // namespace

extern constinit const Importer rmm_legacy_csv_importer{
    .name = "rmm-legacy-csv",
    .summary = "what rmm.csv_log() gave until 0.14: Event Type,Device ID,Address,...",
    .from_documentation = true,
    .sniff = sniff_rmm_legacy_csv,
    .read = read_legacy_log,
};

}  // namespace emm
