#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// Splits a line into words at spaces and remembers the first word that is not as expected. Missing
/// words are empty.
class Words {
 public:
  explicit Words(std::string_view line) noexcept : line_(line) {}

  std::string_view take() noexcept {
    at_ = std::min(line_.find_first_not_of(kSpaces, next_), line_.size());
    next_ = std::min(line_.find_first_of(kSpaces, at_), line_.size());
    return word();
  }
  /// Takes a number, decimal or hex after 0x.
  std::uint64_t number(std::string_view what, std::string_view expected) noexcept {
    const auto value = text::to_u64(take());
    if (!value) refuse(what, expected);
    return value.value_or(0);
  }
  /// Expects the end of the line.
  void end() noexcept {
    if (!take().empty()) refuse("the rest", "the end of the line");
  }
  /// Refuses the word that was taken last.
  void refuse(std::string_view what, std::string_view expected) noexcept {
    if (!bad_) bad_ = BadField{.what = what, .value = word(), .at = at_, .expected = expected};
  }
  const std::optional<BadField>& bad() const noexcept { return bad_; }

 private:
  static constexpr std::string_view kSpaces = " \t";

  std::string_view word() const noexcept { return line_.substr(at_, next_ - at_); }

  std::string_view line_;
  std::size_t at_ = 0, next_ = 0;
  std::optional<BadField> bad_;
};

}  // namespace emm::trace
