#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "exchange/importers/import_run.hpp"
#include "format/json_value.hpp"

namespace emm::trace {

using format::JsonValue;

/// Accepts only a number or a string of digits, in hex after 0x.
inline std::optional<std::uint64_t> address_in(const JsonValue& value) noexcept {
  const auto text = value.as_string();
  return text ? text::to_u64(*text) : value.as_u64();
}
/// Accepts a number that is not negative and drops its fraction.
inline std::optional<std::uint64_t> time_in(const JsonValue& value) noexcept {
  constexpr double kMost = 9e18;  // below 2^63, which a double holds exactly
  const auto whole = value.as_u64();
  const auto real = whole ? std::nullopt : value.as_double();
  if (!real || !(*real >= 0) || *real > kMost) return whole;
  return static_cast<std::uint64_t>(*real);
}
/// Removes the comma that follows a row taken from an array of rows.
inline std::string_view without_comma(std::string_view line) noexcept {
  line = text::trim(line);
  if (line.ends_with(',')) line.remove_suffix(1);
  return line;
}

/// Reads elements from one line that is a JSON array. The elements contain no commas. Remembers the
/// first element that is not as expected.
class ArrayRow {
 public:
  ArrayRow(std::string_view line, const JsonValue& value) noexcept : line_(line), value_(value) {}

  /// Returns the element, or null if the row is too short.
  const JsonValue* element(std::size_t index) const noexcept {
    return index < value_.elements.size() ? &value_.elements[index] : nullptr;
  }
  /// Returns what `number_in` finds in the element.
  template <class NumberIn>
  std::uint64_t number(std::size_t index, std::string_view what, std::string_view expected,
                       const NumberIn& number_in) {
    const auto* const said = element(index);
    const std::optional<std::uint64_t> number = said != nullptr ? number_in(*said) : std::nullopt;
    if (!number) refuse(index, what, expected);
    return number.value_or(0);
  }
  std::string_view word(std::size_t index, std::string_view what,
                        std::string_view expected) noexcept;
  void refuse(std::size_t index, std::string_view what, std::string_view expected) noexcept;
  const std::optional<BadField>& bad() const noexcept { return bad_; }

 private:
  std::string_view line_;
  const JsonValue& value_;
  std::optional<BadField> bad_;
};

/// Reads required members from one line of JSON and remembers the first that is not as expected.
class JsonRow {
 public:
  JsonRow(std::string_view line, const JsonValue& value) noexcept : line_(line), value_(value) {}

  bool has(std::string_view key) const noexcept { return value_.find(key) != nullptr; }
  std::uint64_t u64(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    return said(key, expected, member != nullptr ? member->as_u64() : std::nullopt);
  }
  std::uint64_t address(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    return said(key, expected, member != nullptr ? address_in(*member) : std::nullopt);
  }
  std::uint64_t time(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    return said(key, expected, member != nullptr ? time_in(*member) : std::nullopt);
  }
  bool boolean(std::string_view key) noexcept {
    const auto* const member = value_.find(key);
    const auto truth = member != nullptr ? member->as_bool() : std::nullopt;
    if (!truth) refuse(key, "true or false");
    return truth.value_or(false);
  }
  /// Lives as long as the value.
  std::string_view string(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    const auto text = member != nullptr ? member->as_string() : std::nullopt;
    if (!text) refuse(key, expected);
    return text.value_or(std::string_view{});
  }
  void refuse(std::string_view key, std::string_view expected) noexcept;
  const std::optional<BadField>& bad() const noexcept { return bad_; }

 private:
  std::uint64_t said(std::string_view key, std::string_view expected,
                     std::optional<std::uint64_t> number) noexcept {
    if (!number) refuse(key, expected);
    return number.value_or(0);
  }

  std::string_view line_;
  const JsonValue& value_;
  std::optional<BadField> bad_;
};

}  // namespace emm::trace
