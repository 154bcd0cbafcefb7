#pragma once

#include <cstdint>
#include <string_view>

namespace emm::trace {

/// A symbolic name in a file. A string of digits without leading zeros is the integer, so that 7
/// and "7" are one id. Text is a view into the reader's buffer, valid until the next operation.
struct Id {
  std::uint64_t number = 0;
  std::string_view text{};  ///< Empty: the id is `number`.

  static constexpr Id of(std::uint64_t number) noexcept { return {.number = number}; }
  /// `text` as an id: a number where its digits are one.
  static Id of(std::string_view text) noexcept;
  bool is_number() const noexcept { return text.empty(); }
  bool operator==(const Id&) const = default;
};

}  // namespace emm::trace
