// Lines of allocatorSim: start_op end_op size.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "exchange/importers/each_row.hpp"
#include "exchange/importers/placement_rows.hpp"
#include "exchange/importers/words.hpp"

namespace emm {
namespace {

using namespace trace;

std::optional<BadField> parse(std::string_view line, PlacementRow& row) {
  Words words(line);
  row = {};
  row.lower = words.number("start_op", "a time");
  row.upper = words.number("end_op", "a time after start_op");
  if (row.upper <= row.lower) words.refuse("end_op", "a time after start_op");
  row.size = words.number("size", "a count of bytes");
  words.end();
  return words.bad();
}

int sniff_allocator_sim(std::string_view prefix) {
  constexpr std::size_t kLines = 20;  // headings and comments come first
  std::size_t seen = 0, good = 0;
  first_lines(prefix, kLines, [&](std::string_view line) {
    PlacementRow row;
    ++seen;
    good += parse(line, row) ? 0 : 1;
  });
  return seen > 0 && good == seen ? 60 : 0;
}

Result<ImportCounts> read_lines(format::ByteSource& source, OperationSink& sink,
                                const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(placement_header()); !begun) return std::move(begun).error();
  PlacementRows rows(run);
  PlacementRow row;
  auto read = each_row(
      run,
      [&](std::string_view line) -> Result<std::optional<BadField>> { return parse(line, row); },
      [&]() -> Status {
        rows.add(row);
        return {};
      });
  if (!read) return std::move(read).error();
  return rows.finish();
}

}  // namespace

extern constinit const Importer allocator_sim_importer{
    .name = "allocator-sim",
    .summary = "allocatorSim's lines: start_op end_op size",
    .from_documentation = true,
    .sniff = sniff_allocator_sim,
    .read = read_lines,
};

}  // namespace emm
