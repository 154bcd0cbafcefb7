#include "format/json_writer.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "base/assert.hpp"
#include "base/text_format.hpp"
#include "base/utf8.hpp"

namespace emm::format {
namespace {

/// Appends "\u202e", or two surrogates outside of the basic plane. A reader gets the same string,
/// and a terminal gets nothing that it would obey.
void append_escaped(std::string& out, char32_t point) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (point > 0xffff) {
    append_escaped(out, 0xd7c0 + (point >> 10));
    point = 0xdc00 + (point & 0x3ff);
  }
  out.append("\\u");
  for (int shift = 12; shift >= 0; shift -= 4)
    out.push_back(kHex[(point >> static_cast<unsigned>(shift)) & 15]);
}

/// The number of bytes at the start of `text` that are ASCII and need no escape in a JSON string.
/// Looks at eight bytes at a time, since call sites are many and long.
std::size_t plain_length(std::string_view text) noexcept {
  // A byte of 1, and a top bit, in each place.
  constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = kOnes * 0x80;
  std::size_t at = 0;
  for (; text.size() - at >= sizeof(std::uint64_t); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    const auto quote = word ^ (kOnes * '"'), backslash = word ^ (kOnes * '\\'),
               del = word ^ (kOnes * 0x7f);
    const auto special = ((word - kOnes * ' ') & ~word) | ((quote - kOnes) & ~quote) |
                         ((backslash - kOnes) & ~backslash) | ((del - kOnes) & ~del) | word;
    if ((special & kTops) != 0) break;
  }
  for (; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') break;
  }
  return at;
}

/// Appends `before`, the string and `after` in one call, which serves the short and plain strings
/// that almost all are. Returns false for any other string.
bool append_short(std::string& out, std::string_view before, std::string_view value,
                  std::string_view after) {
  // Characters of the value, and of what stands around it.
  constexpr std::size_t kShort = 120, kAround = 8;
  if (value.size() > kShort || plain_length(value) != value.size()) return false;
  std::array<char, kShort + kAround> text;
  auto* at = text.data();
  const auto put = [&](std::string_view part) { at += part.copy(at, part.size()); };
  put(before);
  *at++ = '"';
  put(value);
  *at++ = '"';
  put(after);
  out.append(text.data(), static_cast<std::size_t>(at - text.data()));
  return true;
}

}  // namespace

void append_json_string(std::string& out, std::string_view value) {
  if (append_short(out, {}, value, {})) return;
  out.push_back('"');
  for (;;) {
    const auto plain = plain_length(value);
    out.append(value.data(), plain);
    value.remove_prefix(plain);
    if (value.empty()) break;
    const char c = value.front();
    std::size_t length = 1;
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      length = text::utf8_length(value);
      if (length == 0) {
        out.append("\xef\xbf\xbd");
        length = 1;
      } else if (text::is_hidden(value)) {
        append_escaped(out, text::code_point(value));
      } else {
        out.append(value.substr(0, length));
      }
    } else {
      switch (c) {
        case '\n':
          out.append("\\n");
          break;
        case '\r':
          out.append("\\r");
          break;
        case '\t':
          out.append("\\t");
          break;
        default:
          append_escaped(out, static_cast<unsigned char>(c));
      }
    }
    value.remove_prefix(length);
  }
  out.push_back('"');
}

JsonWriter& JsonWriter::key(std::string_view name) {
  EMM_ASSERT(!after_key_ && depth_ != 0);
  if (indent_ == 0 && append_short(*out_, filled_[depth_ - 1] ? "," : "", name, ":")) {
    filled_[depth_ - 1] = true;
    after_key_ = true;
    return *this;
  }
  separate();
  append_json_string(*out_, name);
  out_->append(indent_ > 0 ? ": " : ":");
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_json_string(*out_, text);
  return *this;
}

JsonWriter& JsonWriter::value(bool value) { return raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  separate();
  text::append(*out_, number);
  return *this;
}

JsonWriter& JsonWriter::value(std::uint64_t number) {
  separate();
  text::append(*out_, number);
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
  separate();
  text::append(*out_, number);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_->append(json);
  return *this;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  out_->push_back(bracket);
  EMM_ASSERT(depth_ < kDepthMax);
  filled_[depth_++] = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  EMM_ASSERT(depth_ != 0 && !after_key_);
  const bool filled = filled_[--depth_];
  if (filled) new_line();
  out_->push_back(bracket);
  return *this;
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (depth_ == 0) return;
  if (filled_[depth_ - 1]) out_->push_back(',');
  filled_[depth_ - 1] = true;
  new_line();
}

void JsonWriter::new_line() {
  if (indent_ == 0) return;
  out_->push_back('\n');
  out_->append(depth_ * indent_, ' ');
}

}  // namespace emm::format
