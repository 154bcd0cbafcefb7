#include "trace/json/value_reader.hpp"

#include <algorithm>
#include <limits>

#include "base/text.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view expected_of(FieldType type) {
  switch (type) {
    case FieldType::bytes:
      return "a count of bytes";
    case FieldType::nanoseconds:
      return "a count of nanoseconds";
    case FieldType::address:
      return "an address such as \"0x7f0000000200\"";
    default:
      return "a count";
  }
}

bool is_hex(std::string_view digits) {
  constexpr std::size_t kDigits = 16;  // of 64 bits
  return digits.starts_with("0x") && digits.size() > 2 && digits.size() <= 2 + kDigits &&
         digits.find_first_not_of("0123456789abcdefABCDEF", 2) == digits.npos;
}

bool is_decimal(std::string_view digits) {
  return !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
}

/// The value as an error message quotes it: -4096, "abc", an object. Long texts are cut.
std::string quoted(const JsonValue& value) {
  if (value.type == JsonValue::Type::array) return "an array";
  if (value.type == JsonValue::Type::object) return "an object";
  std::string out;
  append_json(out, value);
  constexpr std::size_t kLong = 60;  // bytes of a value that a message shows
  if (out.size() > kLong) {
    out.resize(kLong);
    while ((static_cast<unsigned char>(out.back()) & 0xc0u) == 0x80)
      out.pop_back();  // never cuts inside a UTF-8 character
    if (static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out.append("...");
  }
  return out;
}

}  // namespace

Error ValueReader::wrong(std::string_view member, const JsonValue& value,
                         std::string_view expected) const {
  return fail(Errc::parse_error, "{}:{}:{}: \"{}\" is {}: expected {}", source_, value.at.line,
              value.at.column, member, quoted(value), expected);
}

Error ValueReader::missing(std::string_view member, const JsonValue& whole, std::string_view what,
                           std::string_view all) const {
  return fail(Errc::parse_error, "{}:{}:{}: {} without \"{}\": expected {}", source_, whole.at.line,
              whole.at.column, what, member, all);
}

Status ValueReader::number(std::string_view member, FieldType type, const JsonValue& value,
                           std::uint64_t& out) const {
  if (type != FieldType::address && value.is_unsigned()) {
    if (value.number > kExactInteger) {
      return wrong(member, value, "a string of digits, as above 9007199254740991");
    }
    out = value.number;
    return {};
  }
  if (value.type == JsonValue::Type::string &&
      (is_hex(value.text) || (type != FieldType::address && is_decimal(value.text)))) {
    constexpr std::size_t kDigits = 20;  // of 2^64 - 1
    if (const auto number = text::to_u64(value.text); number && value.text.size() <= kDigits) {
      out = *number;
      return {};
    }
  }
  return wrong(member, value, expected_of(type));
}

Status ValueReader::integer(std::string_view member, const JsonValue& value, std::uint64_t max,
                            std::uint64_t& out) const {
  if (!value.is_unsigned() || value.number > max)
    return wrong(member, value, text::format("0 to {}", max));
  out = value.number;
  return {};
}

Status ValueReader::signed_integer(std::string_view member, const JsonValue& value,
                                   std::int32_t& out) const {
  constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
  if (value.is_unsigned() && value.number <= static_cast<std::uint64_t>(kMax)) {
    out = static_cast<std::int32_t>(value.number);
    return {};
  }
  if (const auto negative = value.as_i64();
      negative && *negative >= std::numeric_limits<std::int32_t>::min() && *negative <= 0) {
    out = static_cast<std::int32_t>(*negative);
    return {};
  }
  return wrong(member, value, "an integer of 32 bits");
}

Status ValueReader::flag(std::string_view member, const JsonValue& value, bool& out) const {
  if (value.type != JsonValue::Type::boolean) return wrong(member, value, "true or false");
  out = value.boolean;
  return {};
}

Status ValueReader::text(std::string_view member, const JsonValue& value,
                         std::string_view& out) const {
  if (value.type != JsonValue::Type::string) return wrong(member, value, "a string");
  out = value.text;
  return {};
}

Status ValueReader::text(std::string_view member, const JsonValue& value, std::string& out) const {
  std::string_view view;
  if (auto taken = text(member, value, view); !taken) return taken;
  out = view;
  return {};
}

Status ValueReader::id(std::string_view member, const JsonValue& value, Id& out) const {
  if (value.is_unsigned() && value.number <= kExactInteger) {
    out = Id::of(value.number);
    return {};
  }
  const bool good = value.type == JsonValue::Type::string && !value.text.empty() &&
                    value.text.size() <= kIdBytes &&
                    std::all_of(value.text.begin(), value.text.end(), is_id_character);
  if (!good)
    return wrong(member, value, "an id: a count, or a string of 1 to 64 letters, digits and _.:/-");
  out = Id::of(std::string_view(value.text));
  return {};
}

Result<std::size_t> ValueReader::index_of(std::string_view member, const JsonValue& value,
                                          std::span<const std::string_view> names) const {
  if (value.type == JsonValue::Type::string && !value.text.empty()) {
    const auto found = std::find(names.begin(), names.end(), value.text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  }
  std::string all;
  for (const auto& name : names) {
    if (name.empty()) continue;
    if (!all.empty()) all.append(&name == &names.back() ? " or " : ", ");
    all.append("\"").append(name).append("\"");
  }
  return wrong(member, value, all);
}

Status ValueReader::check_member(const JsonValue& object, std::size_t index, std::string_view what,
                                 std::span<const std::string_view> known, bool extensions) const {
  const auto& member = object.members[index];
  const auto end = object.members.begin() + static_cast<std::ptrdiff_t>(index);
  if (std::any_of(object.members.begin(), end,
                  [&](const auto& other) { return other.key == member.key; })) {
    return fail(Errc::parse_error,
                "{}:{}:{}: \"{}\" for the second time: expected each member once", source_,
                member.at.line, member.at.column, member.key);
  }
  if (std::find(known.begin(), known.end(), member.key) != known.end()) return {};
  if (extensions && member.key.starts_with("x-")) return {};
  std::string expected;
  if (const auto near = text::nearest(member.key, known.data(), known.size())) {
    expected = text::format("\"{}\"", *near);
  } else {
    expected = text::join(known);
  }
  JsonValue key;
  key.type = JsonValue::Type::string;
  key.text = member.key;
  return fail(Errc::parse_error, "{}:{}:{}: {} has no member {}: expected {}", source_,
              member.at.line, member.at.column, what, quoted(key), expected);
}

}  // namespace emm::trace
