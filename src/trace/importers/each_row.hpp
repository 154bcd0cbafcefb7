#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// `parse(line)`, a Result<std::optional<BadField>>, of `line` and every line after it, and after
/// one that is good `take()`, a Status. A line that is not as it should be ends the import, as
/// ImportRun::refuse has it.
template <class Parse, class Take>
Status each_row_from(ImportRun& run, std::string_view line, Parse&& parse, Take&& take) {
  for (;;) {
    Result<std::optional<BadField>> bad = parse(line);
    if (!bad) return run.refuse(std::move(bad).error());
    if (*bad) return run.refuse(**bad);
    if (auto taken = take(); !taken) return taken;
    auto more = run.next(line);
    if (!more) return std::move(more).error();
    if (!*more) return {};
  }
}

/// Does the same with all lines that were not read yet.
template <class Parse, class Take>
Status each_row(ImportRun& run, Parse&& parse, Take&& take) {
  std::string_view line;
  auto more = run.next(line);
  if (!more) return std::move(more).error();
  return *more ? each_row_from(run, line, parse, take) : Status{};
}

/// The first lines of a file that are not blank, for a sniff: whole ones, unless the file has but
/// one.
template <class Use>
void first_lines(std::string_view prefix, std::size_t count, Use&& use) {
  if (prefix.starts_with("\xef\xbb\xbf")) prefix.remove_prefix(3);
  for (bool first = true; count > 0 && !prefix.empty();) {
    const auto end = prefix.find('\n');
    if (end == std::string_view::npos && !first) return;
    auto line = prefix.substr(0, end);
    prefix.remove_prefix(end == std::string_view::npos ? prefix.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    first = false;
    --count;
    use(line);
  }
}

}  // namespace emm::trace
