#include <string>
#include <vector>

#include "base/text.hpp"
#include "exchange/importer.hpp"

namespace emm::trace {
namespace {

std::string known() {
  std::vector<std::string_view> names;
  for (const auto* importer : bundled_importers()) names.push_back(importer->name);
  return text::join(names);
}

}  // namespace

Result<const Importer*> detect(format::ByteSource& source) {
  constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what sniff() is shown
  const auto prefix = source.peek(kPrefixBytes);
  if (!prefix) return prefix.error();
  if (prefix->starts_with("PK\x03\x04")) {
    return fail(Errc::parse_error, "{}: a ZIP archive: expected a recording: unpack it first",
                source.name());
  }
  const Importer* surest = nullptr;
  auto how_sure = 0;
  for (const auto* importer : bundled_importers()) {
    const auto sure = importer->sniff(*prefix);
    if (sure <= how_sure) continue;
    surest = importer;
    how_sure = sure;
  }
  if (surest == nullptr) {
    return fail(Errc::unknown_format, "{}: {}: expected a trace of a known format: {}",
                source.name(), prefix->empty() ? "the file is empty" : "the format is not known",
                known());
  }
  return surest;
}

Result<const Importer*> find_importer(std::string_view name) {
  for (const auto* importer : bundled_importers()) {
    if (importer->name == name) return importer;
  }
  return fail(Errc::usage, "unknown format '{}': known are {}", name, known());
}

}  // namespace emm::trace
