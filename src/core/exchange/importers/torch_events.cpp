// Events of PyTorch's caching allocator, one JSON array per line, after a line about the run.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/json_row.hpp"
#include "exchange/importers/torch_row.hpp"
#include "exchange/importers/torch_session.hpp"
#include "format/json_value.hpp"

namespace emm {
namespace {

using namespace trace;

/// Is there more than the first line? A file of PyTorch's statistics alone has such a line and no
/// rows.
bool rows_follow(std::string_view prefix) {
  const auto header_end = std::min(prefix.find('\n'), prefix.size());
  const bool ends_with_header = text::trim(prefix.substr(header_end)).empty();
  return !ends_with_header || !text::trim(prefix).ends_with('}');
}

int sniff_torch_events(std::string_view prefix) {
  auto headed = false, at_first = true;
  auto sure = 0;
  first_lines(prefix, 2, [&](std::string_view line) {
    if (!std::exchange(at_first, false) && !headed) return;
    if (!headed && text::trim(line).starts_with('{') &&
        line.find("\"torch\"") != std::string_view::npos) {
      headed = true;
      sure = rows_follow(prefix) ? (prefix.find('\n') == std::string_view::npos ? 30 : 40) : 0;
      return;
    }
    TorchRow row;
    const auto bad = parse_torch_row(line, "", 1, row);
    if (bad && !*bad) sure = headed ? 95 : 80;
  });
  return sure;
}

/// Keeps the line about the run in source.options: it has the allocator's own peaks and settings.
Header header_of(std::string_view line, const format::JsonValue& said) {
  const auto version = text_of(said, "torch");
  auto header = recording_header(version.empty() ? "torch" : "torch " + version, {"streams"});
  header.name = text_of(said, "name");
  header.source_options = text::trim(line);
  if (auto name = text_of(said, "device"); !name.empty()) {
    DeviceInfo device;
    device.name = std::move(name);
    header.devices = {std::move(device)};
  }
  return header;
}

Result<ImportCounts> read_events(format::ByteSource& source, OperationSink& sink,
                                 const ImportOptions& options) {
  ImportRun run(source, sink, options);
  auto header = recording_header("", {"streams"});
  std::string_view line;
  auto more = run.next(line);
  if (!more) return std::move(more).error();
  const bool is_headed = text::trim(line).starts_with('{');
  if (is_headed) {
    auto said = format::parse_json(line, run.source_name(), run.line_number());
    if (!said) return std::move(said).error();
    header = header_of(line, *said);
  }
  if (auto begun = run.header(header); !begun) return std::move(begun).error();

  TorchNumbers numbers;
  TorchSession session(run, numbers);
  TorchRow row;
  const auto parse = [&](std::string_view text) {
    row = {};
    return parse_torch_row(text, run.source_name(), run.line_number(), row);
  };
  const auto take = [&] { return session.row(row); };
  auto read =
      is_headed || !*more ? each_row(run, parse, take) : each_row_from(run, line, parse, take);
  if (!read) return std::move(read).error();
  if (auto finished = session.finish(); !finished) return std::move(finished).error();
  return run.finish(session.live_count(), session.live_bytes());
}

}  // namespace

extern constinit const Importer torch_events_importer{
    .name = "torch-events",
    .summary =
        "events of PyTorch's caching allocator: [action, address, size, stream, time] a line",
    .from_documentation = false,
    .sniff = sniff_torch_events,
    .read = read_events,
};

}  // namespace emm
