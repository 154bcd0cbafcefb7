// The events of PyTorch's caching allocator, one JSON array a line, after a line about the run.
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "format/json_value.hpp"
#include "trace/importers/each_row.hpp"
#include "trace/importers/torch_row.hpp"
#include "trace/importers/torch_session.hpp"

namespace emm {
namespace {

using namespace trace;

int sniff_torch_events(std::string_view prefix) {
  auto headed = false, at_first = true;
  auto sure = 0;
  first_lines(prefix, 2, [&](std::string_view line) {
    if (!std::exchange(at_first, false) && !headed) return;
    if (!headed && text::trim(line).starts_with('{') &&
        line.find("\"torch\"") != std::string_view::npos) {
      headed = true;
      sure = prefix.find('\n') == std::string_view::npos ? 30 : 40;
      return;
    }
    TorchRow row;
    const auto bad = parse_torch_row(line, "", 1, row);
    if (bad && !*bad) sure = headed ? 95 : 80;
  });
  return sure;
}

/// The run's line, kept whole in source.options: it has the allocator's own peaks and settings.
Header header_of(std::string_view line, const format::JsonValue& said) {
  const auto word = [&](std::string_view key) {
    const auto* const member = said.find(key);
    return std::string(member != nullptr ? member->as_string().value_or("") : "");
  };
  Header header;
  header.name = word("name");
  header.framework = word("torch").empty() ? "torch" : text::format("torch {}", word("torch"));
  header.source_options = text::trim(line);
  if (auto name = word("device"); !name.empty()) {
    DeviceInfo device;
    device.name = std::move(name);
    header.devices = {std::move(device)};
  }
  return header;
}

Result<ImportCounts> read_events(format::ByteSource& source, OperationSink& sink,
                                 const ImportOptions& options) {
  ImportRun run(source, sink, options);
  Header header;
  std::string_view line;
  auto more = run.next(line);
  if (!more) return std::move(more).error();
  auto at_row = *more;
  if (*more && text::trim(line).starts_with('{')) {
    auto said = format::parse_json(line, run.source_name(), run.line_number());
    if (!said) return std::move(said).error();
    header = header_of(line, *said);
    at_row = false;
  }
  header.requires_ = {"streams"};
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  if (auto begun = run.header(header); !begun) return std::move(begun).error();

  TorchNumbers numbers;
  TorchSession session(run, numbers);
  for (;;) {
    if (!std::exchange(at_row, false)) {
      more = run.next(line);
      if (!more) return std::move(more).error();
      if (!*more) break;
    }
    TorchRow row;
    auto bad = parse_torch_row(line, run.source_name(), run.line_number(), row);
    if (!bad || *bad) {
      auto cut = bad ? run.refuse(**bad) : run.refuse(std::move(bad).error());
      if (!cut) return std::move(cut).error();
      break;
    }
    if (auto taken = session.row(row); !taken) return std::move(taken).error();
  }
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
