#include "format/csv_line.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::format {
namespace {

constexpr std::string_view kBlanks = " \t";

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of("\",\n\r") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

bool CsvLine::split(std::string_view line) {
  line_size_ = line.size();
  const auto good = line.find('"') == std::string_view::npos || split_quoted(line);
  if (!good || line.find('"') == std::string_view::npos) {
    fields_.clear();
    for (std::size_t at = 0; at <= line.size(); at = add_plain(line, at) + 1) {
    }
  }
  return good;
}

/// Adds the field up to the next comma or the line's end. Returns the offset of that end.
std::size_t CsvLine::add_plain(std::string_view line, std::size_t at) {
  const auto comma = std::min(line.find(',', at), line.size());
  const auto begin = std::min(line.find_first_not_of(kBlanks, at), comma);
  const auto end = line.substr(0, comma).find_last_not_of(kBlanks) + 1;
  fields_.push_back({.text = line.substr(begin, std::max(begin, end) - begin), .at = begin});
  return comma;
}

bool CsvLine::split_quoted(std::string_view line) {
  fields_.clear();
  unescaped_.clear();
  unescaped_.reserve(line.size());  // so that views into it stay valid
  for (std::size_t at = 0; at <= line.size(); ++at) {
    const auto begin = line.find_first_not_of(kBlanks, at);
    if (begin == std::string_view::npos || line[begin] != '"') {
      at = add_plain(line, at);
      continue;
    }
    const auto kept = unescaped_.size();
    auto from = begin + 1;
    auto end = line.find('"', from);
    for (; end != std::string_view::npos && line.substr(end + 1).starts_with('"');
         end = line.find('"', from)) {
      unescaped_.append(line.substr(from, end + 1 - from));
      from = end + 2;
    }
    if (end == std::string_view::npos) return false;
    auto text = line.substr(from, end - from);
    if (kept != unescaped_.size()) {
      unescaped_.append(text);
      text = std::string_view(unescaped_).substr(kept);
    }
    fields_.push_back({.text = text, .at = begin + 1});
    at = std::min(line.find_first_not_of(kBlanks, end + 1), line.size());
    if (at != line.size() && line[at] != ',') return false;
  }
  return true;
}

std::optional<CsvLayout> CsvLayout::of(std::string_view header,
                                       std::span<const CsvColumnName> known,
                                       std::uint64_t required) {
  CsvLine names;
  names.split(header);
  CsvLayout layout;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto name = text::lower(names[i]);
    const auto at = std::find_if(known.begin(), known.end(),
                                 [&](const auto& column) { return column.name == name; });
    const auto column = at == known.end() ? kOther : at->column;
    layout.columns_.push_back(column);
    if (column == kOther) {
      if (!name.empty()) layout.others_.emplace_back(names[i]);
      continue;
    }
    if (layout.has(column)) return std::nullopt;
    layout.named_ |= std::uint64_t{1} << column;
  }
  if ((layout.named_ & required) != required) return std::nullopt;
  return layout;
}

void CsvLayout::add_others(const CsvLayout& layout) {
  for (const auto& name : layout.others_) {
    if (std::find(others_.begin(), others_.end(), name) == others_.end()) others_.push_back(name);
  }
}

}  // namespace emm::format
