#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "format/json_reader.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// Asks one line of JSON for members that must be there; remembers the first that is not as expected.
class JsonRow {
 public:
  JsonRow(std::string_view line, const format::JsonValue& value) noexcept : line_(line), value_(value) {}

  bool has(std::string_view key) const noexcept { return value_.find(key) != nullptr; }
  std::uint64_t u64(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    const auto number = member != nullptr ? member->as_u64() : std::nullopt;
    if (!number) refuse(key, expected);
    return number.value_or(0);
  }
  bool boolean(std::string_view key) noexcept {
    const auto* const member = value_.find(key);
    const auto said = member != nullptr ? member->as_bool() : std::nullopt;
    if (!said) refuse(key, "true or false");
    return said.value_or(false);
  }
  /// Lives as long as the value.
  std::string_view string(std::string_view key, std::string_view expected) noexcept {
    const auto* const member = value_.find(key);
    const auto said = member != nullptr ? member->as_string() : std::nullopt;
    if (!said) refuse(key, expected);
    return said.value_or(std::string_view{});
  }
  void refuse(std::string_view key, std::string_view expected) noexcept;
  const std::optional<BadField>& bad() const noexcept { return bad_; }

 private:
  std::string_view line_;
  const format::JsonValue& value_;
  std::optional<BadField> bad_;
};

}  // namespace emm::trace
