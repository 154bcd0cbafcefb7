#include "format/brief.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/text.hpp"
#include "format/columns.hpp"

namespace emm::format {

namespace {

constexpr std::size_t kWidth = 80;  // columns of prose

/// Breaks a command before its options where it is wide. A shell joins such lines again.
std::string pasted(std::string_view command) {
  std::string out;
  auto column = std::string_view("Next: ").size();
  while (!command.empty()) {
    const auto end = std::min(command.find(" --", 1), command.size());
    if (column + end + 2 > kWidth && !out.empty()) {
      out += " \\\n    ";
      column = 4;
    }
    out += command.substr(0, end);
    column += end;
    command.remove_prefix(end);
  }
  return out;
}

}  // namespace

std::string to_text(const Brief& brief) {
  std::string out;
  for (const auto& sentence : brief.answer) {
    if (!sentence.empty()) out += wrapped(sentence, kWidth);
  }
  if (!brief.command.empty()) out += "Next: " + pasted(brief.command) + '\n';
  if (!brief.rows.empty()) out += '\n' + filled_columns(brief.sides, brief.rows);
  if (!brief.more.empty()) out += '\n' + wrapped("--more shows " + brief.more + '.', kWidth);
  return out;
}

std::size_t words_of(const Brief& brief) {
  std::istringstream words(to_text(brief));
  return static_cast<std::size_t>(std::distance(std::istream_iterator<std::string>(words),
                                                std::istream_iterator<std::string>()));
}

std::string file_name(std::string_view path) {
  const auto slash = path.find_last_of('/');
  const auto name = slash == path.npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
  return text::printable(name, 60);
}

}  // namespace emm::format
