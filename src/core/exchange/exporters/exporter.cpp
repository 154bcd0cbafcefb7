#include "exchange/exporter.hpp"

#include <utility>

#include "base/text.hpp"

namespace emm::trace {

void ExportSink::note(std::uint64_t count, std::string_view words) {
  if (count != 0) notes_.push_back(text::format("{} {}", count, words));
}

NamedFormat format_named_by(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  }
  constexpr std::pair<std::string_view, NamedFormat> kExtensions[] = {
      {".json", {"emm", "chrome-trace"}},
      {".jsonl", {"emm", {}}},
      {".ndjson", {"emm", {}}},
      {".emm", {"emm", {}}},
      {".emmb", {"emm", {}}},
      {".csv", {"rmm-csv", "dsa-csv"}},
      {".pickle", {"torch-pickle", {}}},
      {".pkl", {"torch-pickle", {}}},
  };
  for (const auto& [extension, format] : kExtensions) {
    if (path.ends_with(extension)) return format;
  }
  return {};
}

Result<const Exporter*> find_exporter(std::string_view name) {
  std::vector<std::string_view> names{"emm"};
  for (const auto* exporter : bundled_exporters()) {
    if (exporter->name == name) return exporter;
    names.push_back(exporter->name);
  }
  return fail(Errc::usage, "no format '{}' to write: known are {}", name, text::join(names));
}

}  // namespace emm::trace
