#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trial/setting.hpp"

namespace emm::trial {

/// How a trace fails, as `--fails-with` says it.
struct Symptom {
  enum class Kind : std::uint8_t {
    oom,   ///< "oom": the first operation that fails unexpectedly is out of memory.
    exit,  ///< "exit:N": the replay's exit code is N.
    more,  ///< "more:P": the manager reserves P % more than another does.
  };
  Kind kind = Kind::oom;
  int code = 0;
  double percent = 0;

  /// Errors: usage.
  static Result<Symptom> parse(std::string_view words);
};

/// What one trial of a trace showed.
struct Finding {
  bool shown = false;  ///< The trace fails in the way that is looked for.
  bool interrupted = false;
  std::optional<log::Failure> failure;                ///< The first failure of any kind.
  std::uint64_t reserved = 0, reserved_by_other = 0;  ///< Peaks, for `more`.
};

/// Tries traces for a symptom, at one capacity.
class Examiner {
 public:
  struct Options {
    Symptom symptom{};
    Setting setting{};
    std::uint64_t capacity = 0;
    std::optional<ManagerFactory> against{};  ///< The other manager, for `more`.
    /// The exit code of a run that ends with an error.
    std::function<int(const Error&)> code_of{};
  };
  explicit Examiner(Options options) : options_(std::move(options)) {}

  const Symptom& symptom() const noexcept { return options_.symptom; }
  /// Tries `trace` once. If the symptom is an exit code above 3, the run has a process of its own,
  /// since a signal may end it. Errors are those that leave nothing to report.
  Result<Finding> examine(const trace::Trace& trace) const;
  /// From now on, a trace shows `more` only if the other manager still reserves `bytes` or more.
  /// Otherwise one request of a few bytes would show the managers' rounding and nothing else.
  void set_least_of_other(std::uint64_t bytes) noexcept { least_of_other_ = bytes; }
  std::uint64_t trials() const noexcept { return trials_; }

 private:
  Result<log::Summary> run(const trace::Trace& trace, const ManagerFactory& manager) const;
  Result<Finding> examine_exit(const trace::Trace& trace) const;
  Result<int> code_in_child(const trace::Trace& trace) const;

  Options options_;
  std::uint64_t least_of_other_ = 0;
  mutable std::uint64_t trials_ = 0;
};

}  // namespace emm::trial
