#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::conformance {

/// What came of judging one clause on one manager. A value that travels between processes as bytes.
struct Verdict {
  enum class Kind : std::uint8_t { pass, fail, not_applicable, inconclusive };

  Kind kind = Kind::inconclusive;
  std::string words{};     ///< What was done, of a failure; else why it was not judged.
  std::string seen{};      ///< Of a failure.
  std::string expected{};  ///< Of a failure.
  std::string calls{};     ///< The last driver calls before a failure, one a line.
  /// The trace that shows the failure, and the options that `emmctl replay` needs with it. Both are
  /// empty where no trace can show it.
  std::string trace{};
  std::string options{};
  /// Every clause watches the rules that hold throughout (overlap, alignment, the driver's ledger
  /// ...). The clause whose rule was seen broken here, and the failing verdict on it, as
  /// to_bytes() gives it. Empty: none was.
  std::string broken{};
  std::string evidence{};

  bool operator==(const Verdict&) const = default;

  std::string to_bytes() const;
  /// Error parse_error where `bytes` are not what to_bytes() gave.
  static Result<Verdict> from_bytes(std::string_view bytes);
};

std::string_view name(
    Verdict::Kind kind) noexcept;  ///< "pass", "fail", "not applicable", "inconclusive"

}  // namespace emm::conformance
