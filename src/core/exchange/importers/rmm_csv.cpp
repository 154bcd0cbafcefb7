// Logs of RMM's logging_resource_adaptor.
#include <string_view>

#include "exchange/importers/each_row.hpp"
#include "exchange/importers/rmm_rows.hpp"
#include "format/rmm_csv_reader.hpp"

namespace emm {
namespace {

using namespace trace;
namespace rmm = format::rmm;

int sniff_rmm_csv(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1, [&](std::string_view line) {
    rmm::Row row;
    auto own = *rmm::dialect_of(rmm::kHeader);
    sure = rmm::dialect_of(line)        ? 100
           : rmm::parse(line, own, row) ? 0
                                        : 60;  // part of a log without its header
  });
  return sure;
}

Result<ImportCounts> read_log(format::ByteSource& source, OperationSink& sink,
                              const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(rmm_header()); !begun) return std::move(begun).error();

  RmmRows rows(run);
  DayClock clock;
  auto dialect = *rmm::dialect_of(rmm::kHeader);
  rmm::Row row;
  for (;;) {
    auto more = next_rmm_row(run, rmm::dialect_of, dialect, row);
    if (!more) return std::move(more).error();
    if (!*more) break;
    const auto time_ns = clock.since_start_ns(row.time_ns);
    auto taken = rows.row(row, time_ns, dialect.has_thread());
    if (!taken) return std::move(taken).error();
  }
  run.note_columns(dialect.layout.others());
  return rows.finish();
}

}  // namespace

namespace trace {

Header rmm_header() { return recording_header("RMM", {"streams", "threads"}); }

}  // namespace trace

extern constinit const Importer rmm_csv_importer{
    .name = "rmm-csv",
    .summary = "RMM's log: Thread,Time,Action,Pointer,Size,Stream, in any order and among others",
    .from_documentation = true,
    .sniff = sniff_rmm_csv,
    .read = read_log,
};

}  // namespace emm
