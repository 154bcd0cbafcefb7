#include "base/shell_word.hpp"

#include "base/text.hpp"

namespace emm::text {

std::string shell_word(std::string_view path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./%+,=@:";
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(path);
  std::string out = "'";
  for (const char c : printable(path, std::string::npos)) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + '\'';
}

}  // namespace emm::text
