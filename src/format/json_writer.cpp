#include "format/json_writer.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "base/assert.hpp"
#include "base/text.hpp"

namespace emm::format {
namespace {

/// The length of the well-formed UTF-8 sequence that `text` begins with, 0 if there is none (RFC
/// 3629).
std::size_t sequence_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto continues = [&](std::size_t at, unsigned low = 0x80, unsigned high = 0xbf) {
    return at < text.size() && byte(at) >= low && byte(at) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool good =
        continues(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && continues(2);
    return good ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool good = continues(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) &&
                      continues(2) && continues(3);
    return good ? 4 : 0;
  }
  return 0;
}

/// Of how many bytes at its start it is sure that they stand in a JSON string as they are: eight at a time, in one
/// word, since call sites are many and long.
std::size_t plain_length(std::string_view text) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = kOnes * 0x80;
  std::size_t at = 0;
  for (; text.size() - at >= sizeof(std::uint64_t); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    const auto quote = word ^ (kOnes * '"'), backslash = word ^ (kOnes * '\\');
    const auto special = ((word - kOnes * ' ') & ~word) | ((quote - kOnes) & ~quote) |
                         ((backslash - kOnes) & ~backslash) | word;
    if ((special & kTops) != 0) break;
  }
  for (; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
  }
  return at;
}

}  // namespace

namespace {

/// `before`, the string and `after`, put there at once, as almost all are short and plain; false where this one is not.
bool append_short(std::string& out, std::string_view before, std::string_view value, std::string_view after) {
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
      length = sequence_length(value);
      out.append(length == 0 ? std::string_view("\xef\xbf\xbd") : value.substr(0, length));
      if (length == 0) length = 1;
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
        default: {
          constexpr std::string_view kHex = "0123456789abcdef";
          out.append("\\u00");
          out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
          out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
        }
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
