#include "exchange/exporter.hpp"

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
  NamedFormat named;
  const auto add = [&](std::string_view format, std::span<const std::string_view> extensions) {
    for (const auto extension : extensions) {
      if (extension.empty() || !path.ends_with(extension)) continue;
      (named.format.empty() ? named.format : named.other) = format;
    }
  };
  constexpr std::string_view kTraces[] = {".json", ".jsonl", ".ndjson", ".emm", ".emmb"};
  add("emm", kTraces);
  for (const auto* exporter : bundled_exporters()) add(exporter->name, exporter->extensions);
  return named;
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
