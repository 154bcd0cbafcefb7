#include "base/shell_word.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace emm::text {
namespace {

std::string in_quotes(std::string_view word) {
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + '\'';
}

/// $'...', as bash, ksh and zsh read it, and POSIX since 2024.
std::string with_escapes(std::string_view word) {
  std::string out = "$'";
  while (!word.empty()) {
    const auto length = utf8_length(word);
    const char c = word.front();
    if (c == '\'' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (length != 0 && !is_hidden(word)) {
      out.append(word.substr(0, length));
    } else {
      for (const char byte : word.substr(0, std::max<std::size_t>(length, 1))) {
        const auto bits = static_cast<unsigned char>(byte);
        for (const char digit :
             {'\\', static_cast<char>('0' + bits / 64), static_cast<char>('0' + bits / 8 % 8),
              static_cast<char>('0' + bits % 8)})
          out += digit;
      }
    }
    word.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out + '\'';
}

}  // namespace

std::string shell_word(std::string_view path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./%+,=@:";
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(path);
  if (printable(path, std::string_view::npos) == path) return in_quotes(path);
  return with_escapes(path);
}

}  // namespace emm::text
