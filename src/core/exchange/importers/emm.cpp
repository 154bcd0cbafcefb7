// The trace format itself.
#include <string_view>

#include "base/text.hpp"
#include "exchange/importer.hpp"
#include "trace/compact/reader.hpp"

namespace emm {
namespace {

using namespace trace;

int sniff_emm(std::string_view prefix) {
  if (is_compact(prefix)) return 100;
  // The header is the first line, or begins the document.
  constexpr std::size_t kHeaderBytes = 4096;
  const auto begin = text::trim(prefix.substr(0, kHeaderBytes));
  if (!begin.starts_with('{')) return 0;
  const auto says = [&](std::string_view word) {
    return begin.find(word) != std::string_view::npos;
  };
  if (says("\"emmctl-trace\"")) return 100;
  // A header without its "format". Logs have "events", too, and no operations.
  return says("\"op\"") && (says("\"events\"") || says("\"defaults\"")) ? 40 : 0;
}

Result<ImportCounts> read_trace(format::ByteSource& source, OperationSink& sink,
                                const ImportOptions& options) {
  auto summary = read(source, sink, {.partial = options.partial});
  if (!summary) return std::move(summary).error();
  ImportCounts counts{.rows = summary->operations,
                      .used = summary->operations - summary->extensions,
                      .other = summary->extensions,
                      .notes = {}};
  if (summary->extensions != 0) {
    counts.notes.push_back(
        text::format("{} operations are extensions, which a replay skips", summary->extensions));
  }
  if (summary->torn) {
    ++counts.rows;
    ++counts.truncated;
    counts.notes.push_back(summary->torn_where);
  }
  return counts;
}

}  // namespace

extern constinit const Importer emm_importer{
    .name = "emm",
    .summary = "the trace format: JSON Lines, one document, or compact",
    .from_documentation = false,
    .sniff = sniff_emm,
    .read = read_trace,
};

}  // namespace emm
