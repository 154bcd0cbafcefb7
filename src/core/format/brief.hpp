#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace emm::format {

/// What a command answers by default, in one breath. A test counts its words.
struct Brief {
  static constexpr std::size_t kRows = 5;     ///< The entries of a list that are shown.
  static constexpr std::size_t kWords = 120;  ///< What somebody reads in one breath.

  std::vector<std::string> answer;  ///< At most three sentences. Empty ones are left out.
  std::string command;              ///< To paste into a shell. Empty if there is nothing to do.
  std::string sides;                ///< As columns() takes them.
  std::vector<std::vector<std::string>> rows;
  std::string more;  ///< Names what --more shows besides.
};

/// Writes the answer, the command, the table, and what else can be seen.
std::string to_text(const Brief& brief);
std::size_t words_of(const Brief& brief);

/// Returns the name of a file without its folders: the answer is read, and the command is pasted.
std::string file_name(std::string_view path);

}  // namespace emm::format
