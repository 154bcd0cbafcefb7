#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Numbers and text, without locales: the same bytes on every machine.
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

std::string hex(std::uint64_t value);           ///< "0x7f00"
std::string fixed(double value, int decimals);  ///< "1.50"
std::string grouped(std::uint64_t value);       ///< "1,234,567"
std::optional<std::uint64_t> to_u64(
    std::string_view digits);  ///< Decimal, or hex after 0x; no sign, no space.
std::optional<double> to_double(std::string_view digits);
std::string lower(std::string_view value);
std::string_view trim(std::string_view value);
/// Makes text from a file safe for a terminal: hidden characters (is_hidden() of base/utf8.hpp)
/// become "\x1b" or "\u{202e}", bytes that are not UTF-8 become "\xff", and after about `most`
/// bytes comes "...".
std::string printable(std::string_view value, std::size_t most);
/// "a, b, c"
template <class Range>
std::string join(const Range& parts, std::string_view separator = ", ") {
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out.append(separator);
    append(out, std::string_view(part));
  }
  return out;
}
/// The entry of `known` that is nearest to `word` by edit distance, if it is near enough to
/// suggest.
std::optional<std::string_view> nearest(std::string_view word, const std::string_view* known,
                                        std::size_t count);

}  // namespace emm::text
