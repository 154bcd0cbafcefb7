#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm {

/// A measure that a condition may name.
struct MeasureName {
  std::string_view name;
  bool bytes = false;
};

/// A condition on which a command exits with 1: "reserved > 1.02x", "failures > 0", "peak >= 8GiB".
class Condition {
 public:
  /// Error usage if `words` are no condition, or name another measure.
  static Result<Condition> parse(const std::string& words, std::span<const MeasureName> measures);

  const std::string& words() const noexcept { return words_; }
  std::string_view measure() const noexcept { return measure_.name; }
  bool is_relative() const noexcept {
    return relative_;
  }  ///< The bound is a multiple of a baseline.
  bool above() const noexcept { return above_; }
  bool or_equal() const noexcept { return or_equal_; }
  double bound() const noexcept { return bound_; }
  /// Answers whether the condition holds for every value from `low` to `high`.
  bool holds(double low, double high, double bound) const noexcept;
  /// Formats a value for people: bytes as "7.78 MiB".
  std::string shown(double value) const;

 private:
  std::string words_;
  MeasureName measure_{};
  bool above_ = true, or_equal_ = false, relative_ = false;
  double bound_ = 0;
};

}  // namespace emm
