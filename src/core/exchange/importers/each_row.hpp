#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// Calls `parse(line)`, a Result<std::optional<BadField>>, for `line` and every line after it, and
/// `take()`, a Status, after each good one. A bad line ends the import as ImportRun::refuse() does.
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

/// The same for all lines that were not read yet.
template <class Parse, class Take>
Status each_row(ImportRun& run, Parse&& parse, Take&& take) {
  std::string_view line;
  auto more = run.next(line);
  if (!more) return std::move(more).error();
  return *more ? each_row_from(run, line, parse, take) : Status{};
}

/// Calls `use` for the first `count` lines that are not blank, for a sniff. A line that the prefix
/// cuts is left out unless it is the only one.
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
