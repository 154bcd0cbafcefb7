#include "format/columns.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::format {
namespace {

/// Counts characters, not bytes.
std::size_t width_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0u) != 0x80;
  }));
}

}  // namespace

std::string columns(std::string_view sides, const std::vector<std::vector<std::string>>& rows,
                    std::string_view indent) {
  std::vector<std::size_t> widths(sides.size());
  auto shown = rows;
  for (auto& row : shown) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = text::printable(row[i], std::string::npos);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string out;
  for (const auto& row : shown) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      if (i > 0) line += "  ";
      line += sides[i] == 'r' ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string filled_columns(std::string sides, std::vector<std::vector<std::string>> rows) {
  for (auto column = sides.size(); column-- > 1;) {
    const bool is_empty = std::all_of(rows.begin() + 1, rows.end(), [&](const auto& row) {
      return row[column].empty() || row[column] == "-";
    });
    if (!is_empty) continue;
    sides.erase(column, 1);
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return columns(sides, rows);
}

std::string wrapped(std::string_view given, std::size_t width) {
  const auto shown = text::printable(given, std::string::npos);
  std::string_view words = shown;
  std::string out;
  std::size_t in_line = 0;
  while (!words.empty()) {
    const auto end = std::min(words.find(' '), words.size());
    const auto word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (in_line > 0 && in_line + 1 + word.size() > width) {
      out += '\n';
      in_line = 0;
    } else if (in_line > 0) {
      out += ' ';
      ++in_line;
    }
    out += word;
    in_line += word.size();
  }
  return out + '\n';
}

}  // namespace emm::format
