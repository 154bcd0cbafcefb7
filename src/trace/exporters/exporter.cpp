#include "trace/exporter.hpp"

#include "base/text.hpp"

namespace emm::trace {

void ExportSink::note(std::uint64_t count, std::string_view words) {
  if (count != 0) notes_.push_back(text::format("{} {}", count, words));
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
