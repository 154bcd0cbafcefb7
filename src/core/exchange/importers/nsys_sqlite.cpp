// The SQLite export of an Nsight Systems profile: its table CUDA_GPU_MEMORY_USAGE_EVENTS.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/sqlite_library.hpp"
#include "exchange/importers/umpire_row.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

// The first bytes of any file of SQLite 3, with their NUL.
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::string_view kExpected =
    "an export of Nsight Systems to SQLite, of a profile with --cuda-memory-usage=true";

int sniff_nsys_sqlite(std::string_view prefix) { return prefix.starts_with(kMagic) ? 90 : 0; }

enum NsysColumn { start, process, device, address, bytes, kind, operation, stream };
// In the order of NsysColumn, as the export spells them.
constexpr std::string_view kColumnNames[] = {
    "start",   "globalPid",           "deviceId", "address", "bytes",
    "memKind", "memoryOperationType", "streamId"};
// Substitutes for columns that a version of the export lacks; streams exist since 2022. An empty
// one marks a column that the import needs.
constexpr std::string_view kInstead[] = {"rowid", "0", "0", "", "", "2", "", "NULL"};
// The values of the export's tables ENUM_CUDA_MEM_KIND and ENUM_CUDA_DEV_MEM_EVENT_OPER.
constexpr std::uint64_t kPinned = 1, kDevice = 2, kArray = 3, kManaged = 4;
constexpr std::uint64_t kAllocation = 0, kDeallocation = 1;

/// Turns rows into operations. If several processes were profiled, each has its own contexts:
/// "p7.d0".
class NsysRows {
 public:
  NsysRows(ImportRun& run, bool processes) noexcept
      : run_(run), pairs_(run), processes_(processes) {}

  Status row(const SqliteDatabase::Query& row, std::uint64_t line) {
    const auto number = [&](NsysColumn column) { return row.number(column).value_or(0); };
    if (!started_) start_ns_ = number(start);
    started_ = true;
    Operation op{.members = Members(Member::time_ns)};
    op.line = static_cast<std::uint32_t>(line);
    op.time_ns = number(start) < start_ns_ ? 0 : number(start) - start_ns_;
    op.device = static_cast<std::uint32_t>(number(device));
    if (op.device != 0) op.members.add(Member::device);
    const auto pid = number(process) >> 24 & 0xffffff;
    const auto context = text::format("p{}.d{}", pid, op.device);
    if (processes_) {
      op.context = Id{.text = context};
      op.members.add(Member::context);
    }
    const auto on_stream = row.number(stream).value_or(0);
    if (on_stream != 0) {
      op.stream = Id::of(on_stream);
      op.members.add(Member::stream);
    }
    pairs_.of_process(pid);
    const auto done = number(operation);
    if (done == kDeallocation) return pairs_.free(op, number(address), number(bytes));
    if (done != kAllocation || !set_kind(op, number(kind))) {
      ++other_;
      run_.other();
      return {};
    }
    return pairs_.allocate(op, number(address), number(bytes));
  }
  Result<ImportCounts> finish() {
    run_.note(other_,
              "rows are neither an allocation nor a free of device, managed or pinned memory");
    return pairs_.finish();
  }

 private:
  static bool set_kind(Operation& op, std::uint64_t kind) {
    switch (kind) {
      case kDevice:
        return true;
      case kArray:
        op.kind = Kind::array;
        op.members.add(Member::kind);
        return true;
      case kManaged:
        op.op = Op::memallocmanaged;
        return true;
      case kPinned:
        op.op = Op::memhostalloc;
        return true;
      default:
        return false;
    }
  }

  ImportRun& run_;
  PairedRows pairs_;
  bool processes_;
  std::uint64_t start_ns_ = 0, other_ = 0;
  bool started_ = false;
};

/// Reads the whole file into memory. A packed file is refused beyond a bound.
Result<std::string> bytes_of(format::ByteSource& source) {
  // Bytes; SQLite reads a packed file from memory, and a page's size stands at byte 16.
  constexpr std::size_t kUnpackedMax = std::size_t{1} << 30, kPageBytesAt = 16;
  const auto refused = [&](std::string_view words) {
    return fail(Errc::parse_error, "{}: {}: expected {}", source.name(), words, kExpected);
  };
  const auto begin = source.peek(kPageBytesAt + 2);
  if (!begin) return begin.error();
  // The page size: two bytes, a power of two from 512, or 1 for 65536. The check avoids reading
  // gigabytes of a file that is not a database.
  const auto page_bytes = begin->size() < kPageBytesAt + 2
                              ? 0
                              : static_cast<unsigned char>((*begin)[kPageBytesAt]) * 256 +
                                    static_cast<unsigned char>((*begin)[kPageBytesAt + 1]);
  const auto is_page =
      page_bytes == 1 || (page_bytes >= 512 && (page_bytes & (page_bytes - 1)) == 0);
  if (!begin->starts_with(kMagic) || !is_page) return refused("the file is no database of SQLite");
  std::string all;
  const auto bytes_max = std::max<std::uint64_t>(source.total(), kUnpackedMax);
  all.reserve(source.total());
  for (;;) {
    auto some = source.next();
    if (!some) return std::move(some).error();
    if (some->empty()) return all;
    if (all.size() + some->size() > bytes_max)
      return refused("there is more than 1 GiB in a packed file");
    all += *some;
  }
}

/// Requires a table of that name. A view is refused, since it would run SQL from the file.
Status expect_table(SqliteDatabase& database) {
  auto known = database.query(
      "SELECT 1 FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %' AND "
      "name = 'CUDA_GPU_MEMORY_USAGE_EVENTS'");
  if (!known) return std::move(known).error();
  auto found = known->next();
  if (!found) return std::move(found).error();
  if (!*found) return database.refused("it has no table CUDA_GPU_MEMORY_USAGE_EVENTS");
  return {};
}

/// The columns of the table or their substitutes. Adds the names of missing columns to `missing`.
Result<std::string> columns_of(SqliteDatabase& database, std::vector<std::string>& missing) {
  std::string columns;
  for (int column = start; column <= stream; ++column) {
    std::string_view name = kColumnNames[column];
    const auto known =
        database.query(text::format("SELECT {} FROM CUDA_GPU_MEMORY_USAGE_EVENTS LIMIT 0", name));
    if (!known) {
      if (kInstead[column].empty()) {
        return database.refused(
            text::format("its CUDA_GPU_MEMORY_USAGE_EVENTS has no column {}", name));
      }
      if (column != stream) missing.emplace_back(name);
      name = kInstead[column];
    }
    columns += columns.empty() ? "" : ", ";
    columns += name;
  }
  return columns;
}

Result<bool> has_processes(SqliteDatabase& database, const std::vector<std::string>& missing) {
  if (std::find(missing.begin(), missing.end(), kColumnNames[process]) != missing.end())
    return false;
  auto counted =
      database.query("SELECT count(DISTINCT globalPid) FROM CUDA_GPU_MEMORY_USAGE_EVENTS");
  if (!counted) return std::move(counted).error();
  auto row = counted->next();
  if (!row) return std::move(row).error();
  return counted->number(0).value_or(0) > 1;
}

Result<ImportCounts> read_database(format::ByteSource& source, OperationSink& sink,
                                   const ImportOptions& options) {
  const auto prefix = source.peek(std::size_t{64} << 10);
  if (!prefix) return prefix.error();
  if (auto nsys = refuse_umpire_database(*prefix, source.name()); !nsys)
    return std::move(nsys).error();
  auto all = bytes_of(source);
  if (!all) return std::move(all).error();
  auto database = SqliteDatabase::open(*std::move(all), source.name(), std::string(kExpected));
  if (!database) return std::move(database).error();
  if (auto known = expect_table(*database); !known) return std::move(known).error();
  std::vector<std::string> missing;
  auto columns = columns_of(*database, missing);
  if (!columns) return std::move(columns).error();
  auto processes = has_processes(*database, missing);
  if (!processes) return std::move(processes).error();
  auto events = database->query(
      text::format("SELECT {} FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY 1, rowid", *columns));
  if (!events) return std::move(events).error();

  ImportRun run(source, sink, options);
  const auto header =
      recording_header("Nsight Systems", {"streams", "multi-device"}, Level::runtime);
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  NsysRows rows(run, *processes);
  for (std::uint64_t line = 1;; ++line) {
    auto more = events->next();
    if (!more) return std::move(more).error();
    if (!*more) break;
    for (int column = start; column <= operation; ++column) {
      const auto number = events->number(column);
      if (number && (column != device || *number <= kDeviceMax)) continue;
      return fail(Errc::parse_error, "{}: {}: expected {}", source.name(),
                  text::format("{} of event {} is not as it should be", kColumnNames[column], line),
                  column == device ? "a device's number" : "an integer");
    }
    if (auto taken = rows.row(*events, line); !taken) return std::move(taken).error();
  }
  run.note(missing.size(), text::format("columns are not there: {}", text::join(missing)));
  return rows.finish();
}

}  // namespace

extern constinit const Importer nsys_sqlite_importer{
    .name = "nsys-sqlite",
    .summary =
        "Nsight Systems' export to SQLite: CUDA_GPU_MEMORY_USAGE_EVENTS; needs libsqlite3.so.0",
    .from_documentation = true,
    .sniff = sniff_nsys_sqlite,
    .read = read_database,
};

}  // namespace emm
