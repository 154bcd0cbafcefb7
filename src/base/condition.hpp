#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm {

/// What a condition may be about.
struct MeasureName {
  std::string_view name;
  bool bytes = false;
};

/// A bound under which a command exits with 1: "reserved > 1.02x", "failures > 0", "peak >= 8GiB".
class Condition {
 public:
  /// Usage error where `words` are none, or of another measure.
  static Result<Condition> parse(const std::string& words, std::span<const MeasureName> measures);

  const std::string& words() const noexcept { return words_; }
  std::string_view measure() const noexcept { return measure_.name; }
  bool is_relative() const noexcept { return relative_; }  ///< So many times a baseline.
  bool above() const noexcept { return above_; }
  bool or_equal() const noexcept { return or_equal_; }
  double bound() const noexcept { return bound_; }
  /// Does it hold of what is surely not less than `low` and not more than `high`?
  bool holds(double low, double high, double bound) const noexcept;
  /// A value as people read it: bytes as "7.78 MiB".
  std::string shown(double value) const;

 private:
  std::string words_;
  MeasureName measure_{};
  bool above_ = true, or_equal_ = false, relative_ = false;
  double bound_ = 0;
};

}  // namespace emm
