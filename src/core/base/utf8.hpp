#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace emm::text {

/// The length of the well-formed UTF-8 sequence that `text` begins with, 0 if there is none (RFC
/// 3629).
std::size_t utf8_length(std::string_view text) noexcept;

/// Answers whether a terminal obeys or hides the first character of `text`: a control character (C0
/// or C1), a mark of direction, a character of no width, a line separator, or a code point that is
/// no character. REQUIRES: utf8_length(text) != 0.
bool is_hidden(std::string_view text) noexcept;

/// The code point of the first character: 0x202e for U+202E. REQUIRES: utf8_length(text) != 0.
char32_t code_point(std::string_view text) noexcept;

/// Appends a code point. REQUIRES: it is one, and no surrogate.
void append_utf8(std::string& out, char32_t point);

/// The first bytes of `text`, at most `most`, without a cut character at the end. REQUIRES: `text`
/// is UTF-8.
std::string_view head(std::string_view text, std::size_t most) noexcept;
/// The last bytes of `text`, likewise.
std::string_view tail(std::string_view text, std::size_t most) noexcept;

}  // namespace emm::text
