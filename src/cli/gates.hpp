#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/condition.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"

namespace emm::cli {

/// The option --fail-if of a command that measures one trace, which therefore has no baseline.
class Gates {
 public:
  /// `measures` must outlive the object.
  explicit Gates(std::span<const MeasureName> measures) : measures_(measures) {}

  /// Offers --fail-if. `example` is a condition.
  void offer(Arguments& arguments, std::string_view example);
  /// Reads what was given. Errors: usage.
  Status parse();
  /// Says which conditions hold, with the values of the measures in their order. Then a result that
  /// was fine becomes a failure. `of_leaks` says what a passing "leaked" does not count.
  ExitCode judge(Console& console, ExitCode code, std::initializer_list<std::uint64_t> values,
                 std::string_view of_leaks = {}) const;

 private:
  std::span<const MeasureName> measures_;
  std::vector<std::string> given_;
  std::vector<Condition> conditions_;
};

}  // namespace emm::cli
