#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text_format.hpp"

/// Numbers and text, without locales: the same bytes on every machine.
namespace emm::text {

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
