#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::conformance {

/// The outcome of judging one clause on one manager. It can be sent between processes as bytes.
struct Verdict {
  enum class Kind : std::uint8_t { pass, fail, not_applicable, inconclusive };

  Kind kind = Kind::inconclusive;
  std::string words{};     ///< For a failure, what was done; else why the clause was not judged.
  std::string seen{};      ///< For a failure.
  std::string expected{};  ///< For a failure.
  std::string calls{};     ///< The last driver calls before a failure, one on each line.
  /// The lines of a class of Python's that ran before a failure, or its traceback, one on each
  /// line.
  std::string story{};
  /// The trace that reproduces the failure and the options that `emmctl replay` needs with it. Both
  /// are empty when no trace can.
  std::string trace{};
  std::string options{};
  /// Every clause watches the rules that hold throughout (overlap, alignment, the driver's ledger
  /// ...). If one was broken here, this holds the clause of that rule and the failing verdict on
  /// it, as to_bytes() gives it. Empty: none was.
  std::string broken{};
  std::string evidence{};
  /// Another fault that was seen on this bench before the failure, and may be its cause:
  /// kWrongEnds, or empty.
  std::string cause{};

  bool operator==(const Verdict&) const = default;

  std::string to_bytes() const;
  /// Fails with parse_error when `bytes` did not come from to_bytes().
  static Result<Verdict> from_bytes(std::string_view bytes);
};

/// The manager has released something twice, or what it had not got.
inline constexpr std::string_view kWrongEnds = "released twice";
/// What a clause has seen whose blocks were freed and neither serve again nor are the device's.
inline constexpr std::string_view kMemoryNotReleased = "memory is not released";
/// What a pool does not do whose idle memory stays in pieces.
inline constexpr std::string_view kNotJoined = "two free neighbours are not joined";
/// What is expected where the process of a clause crashed, hung or exited.
inline constexpr std::string_view kNoHarm = "an end without harm";
/// The words of a clause that was not judged because a signal ended the run.
inline constexpr std::string_view kInterrupted = "interrupted";

std::string_view name(
    Verdict::Kind kind) noexcept;  ///< "pass", "fail", "not applicable", "inconclusive"

}  // namespace emm::conformance
