#include "base/utf8.hpp"

#include <algorithm>
#include <array>

namespace emm::text {
namespace {

bool continues(char c) noexcept { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80; }

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto in = [&](std::size_t at, unsigned low = 0x80, unsigned high = 0xbf) {
    return at < text.size() && byte(at) >= low && byte(at) <= high;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return in(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    return in(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && in(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    return in(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && in(2) && in(3) ? 4
                                                                                             : 0;
  }
  return 0;
}

char32_t code_point(std::string_view text) noexcept {
  const auto length = utf8_length(text);
  constexpr std::array<unsigned char, 5> kFirst{0, 0x7f, 0x1f, 0x0f, 0x07};
  auto point = static_cast<char32_t>(static_cast<unsigned char>(text[0]) & kFirst[length]);
  for (std::size_t i = 1; i < length; ++i)
    point = (point << 6) | (static_cast<unsigned char>(text[i]) & 0x3fu);
  return point;
}

bool is_hidden(std::string_view text) noexcept {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return first < 0x20 || first == 0x7f;
  struct CodePointRange {
    char32_t first, last;
  };
  constexpr std::array<CodePointRange, 12> kHidden{
      {{0x80, 0x9f},           // controls
       {0xad, 0xad},           // soft hyphen
       {0x61c, 0x61c},         // Arabic letter mark
       {0x180e, 0x180e},       // Mongolian vowel separator
       {0x200b, 0x200f},       // zero width, marks of direction
       {0x2028, 0x202e},       // separators of lines, overrides of direction
       {0x2060, 0x206f},       // word joiner, isolates of direction
       {0xfeff, 0xfeff},       // byte order mark
       {0xfff9, 0xfffb},       // annotations
       {0xfffe, 0xffff},       // no characters
       {0xe0000, 0xe007f},     // tags
       {0xf0000, 0x10ffff}}};  // for private use, or none
  const auto point = code_point(text);
  return std::any_of(kHidden.begin(), kHidden.end(), [&](const CodePointRange& each) {
    return each.first <= point && point <= each.last;
  });
}

void append_utf8(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
    return;
  }
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else {
    if (point < 0x10000) {
      put(0xe0 | point >> 12);
    } else {
      put(0xf0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3f));
    }
    put(0x80 | (point >> 6 & 0x3f));
  }
  put(0x80 | (point & 0x3f));
}

std::string_view head(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && continues(text[most])) --most;
  return text.substr(0, most);
}

std::string_view tail(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  auto from = text.size() - most;
  while (from < text.size() && continues(text[from])) ++from;
  return text.substr(from);
}

}  // namespace emm::text
