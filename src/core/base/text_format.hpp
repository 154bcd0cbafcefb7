#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

/// Words with holes. Without locales: the same bytes on every machine. base/text.hpp has the rest
/// of emm::text; messages need no more than this.
namespace emm::text {

void append(std::string& out, std::string_view value);
void append(std::string& out, char value);
void append(std::string& out, bool value);
void append(std::string& out, std::uint64_t value);
void append(std::string& out, std::int64_t value);
void append(std::string& out, double value);  ///< Shortest form that reads back the same.
template <std::integral T>
void append(std::string& out, T value) {
  if constexpr (std::is_signed_v<T>) {
    append(out, static_cast<std::int64_t>(value));
  } else {
    append(out, static_cast<std::uint64_t>(value));
  }
}
inline void append(std::string& out, const char* value) { append(out, std::string_view(value)); }
inline void append(std::string& out, const std::string& value) {
  append(out, std::string_view(value));
}

/// Copies `words` up to its next {} into `out` and returns what follows it.
std::string_view append_up_to_hole(std::string& out, std::string_view words);

/// `words` with each {} replaced by the next argument. There is no escape and no format spec.
template <class... Args>
std::string format(std::string_view words, const Args&... args) {
  std::string out;
  ((words = append_up_to_hole(out, words), append(out, args)), ...);
  out.append(words);
  return out;
}

}  // namespace emm::text
