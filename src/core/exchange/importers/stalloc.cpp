// Lines of STAlloc: "1 pointer size stream" and "0 pointer size stream", between lines that mark
// phases.
#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/stream_name.hpp"
#include "exchange/importers/words.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

struct StallocLine {
  std::string_view phase{};  ///< The whole line if it marks a phase; otherwise empty.
  bool allocates = false;
  std::uint64_t pointer = 0, size = 0, stream = 0;
};

bool marks_phase(std::string_view line) {
  return line.starts_with("Iteration Index") || line.starts_with("micro-batch");
}

std::optional<BadField> parse_stalloc_line(std::string_view text, StallocLine& line) {
  line = {};
  if (const auto trimmed = text::trim(text); marks_phase(trimmed)) {
    line.phase = trimmed;
    return std::nullopt;
  }
  Words words(text);
  const auto what = words.take();
  line.allocates = what == "1";
  if (!line.allocates && what != "0") {
    words.refuse("the first word", "1, 0, Iteration Index or micro-batch");
    return words.bad();
  }
  line.pointer = words.number("pointer", "an address");
  line.size = words.number("size", "a count of bytes");
  line.stream = words.number("stream", "a stream's handle");
  words.end();
  return words.bad();
}

int sniff_stalloc(std::string_view prefix) {
  constexpr std::size_t kLines = 20;  // headings and comments come first
  std::size_t seen = 0, good = 0, phases = 0;
  first_lines(prefix, kLines, [&](std::string_view text) {
    StallocLine line;
    ++seen;
    good += parse_stalloc_line(text, line) ? 0 : 1;
    phases += line.phase.empty() ? 0 : 1;
  });
  if (seen == 0) return 0;
  if (good == seen) return phases > 0 ? 95 : 70;
  return phases > 0 ? 55 : 0;  // damaged
}

Result<ImportCounts> read_stalloc(format::ByteSource& source, OperationSink& sink,
                                  const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(recording_header("STAlloc", {"streams"})); !begun)
    return std::move(begun).error();

  PairedRows pairs(run);
  StreamName stream;
  StallocLine line;
  auto read = each_row(
      run,
      [&](std::string_view text) -> Result<std::optional<BadField>> {
        return parse_stalloc_line(text, line);
      },
      [&]() -> Status {
        Operation op;
        if (!line.phase.empty()) {
          op.op = Op::mark;
          op.text = line.phase;
          op.members.add(Member::text);
          run.used();
          return run.emit(op);
        }
        stream.put(op, line.stream);
        return line.allocates ? pairs.allocate(op, line.pointer, line.size)
                              : pairs.free(op, line.pointer, line.size);
      });
  if (!read) return std::move(read).error();
  return pairs.finish();
}

}  // namespace

extern constinit const Importer stalloc_importer{
    .name = "stalloc",
    .summary =
        "STAlloc's lines: 1 or 0, pointer, size, stream; Iteration Index and micro-batch are marks",
    .from_documentation = true,
    .sniff = sniff_stalloc,
    .read = read_stalloc,
};

}  // namespace emm
