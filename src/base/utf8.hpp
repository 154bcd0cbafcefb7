#pragma once

#include <cstddef>
#include <string_view>

namespace emm::text {

/// The length of the well-formed UTF-8 sequence that `text` begins with, 0 if there is none (RFC
/// 3629).
std::size_t utf8_length(std::string_view text) noexcept;

/// Is this character, of the sequence that `text` begins with, one that a terminal obeys or does
/// not show: a control character, also one of eight bits; a mark of direction, which turns what
/// stands beside it around; of no width; a separator of lines; or no character at all? REQUIRES:
/// utf8_length(text) != 0.
bool is_hidden(std::string_view text) noexcept;

/// U+202E as 0x202e. REQUIRES: utf8_length(text) != 0.
char32_t code_point(std::string_view text) noexcept;

/// At most `most` bytes of `text`, without half a character at the end. REQUIRES: `text` is UTF-8.
std::string_view head(std::string_view text, std::size_t most) noexcept;
/// The same, of its end.
std::string_view tail(std::string_view text, std::size_t most) noexcept;

}  // namespace emm::text
