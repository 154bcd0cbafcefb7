#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/condition.hpp"
#include "format/json_value.hpp"
#include "trial/compare.hpp"
#include "trial/verdict.hpp"

namespace emm::trial {

/// What one manager did with one trace on one device: a row of a report, and what a gate judges.
/// Bytes are sums over the devices of the trace; times are nanoseconds an event.
struct ComparedRow {
  std::string trace, device, manager;
  std::uint64_t peak_live = 0, no_wait = 0, peak_reserved = 0;
  std::uint64_t failures = 0, hazards = 0, violations = 0;
  MedianInterval warm{}, first{}, instructions{};
  bool timed = true;  ///< Not so of the recorded manager.
  /// This manager's, against each that stands before it and against the recorded one; not of what
  /// was read from a file.
  std::vector<PairVerdict> verdicts{};
};

/// What the recorded manager is called ("PyTorch as recorded"), and what it reserved at most.
struct RecordedPeak {
  std::string name;
  std::uint64_t bytes = 0;
  bool refused = false;  ///< It refused requests, which the bounds of the trace have.

  /// Why it reserved less than a bound; nothing where it did not.
  std::optional<Below> below(std::uint64_t bound, std::uint64_t peak_live) const;
};
/// What the recorded manager reserved at its peak. Nothing where the trace does not say.
std::optional<RecordedPeak> recorded_peak(const trace::Trace& trace);

/// The rows of a comparison: where the trace tells what the recorded manager reserved, that is the
/// first.
std::vector<ComparedRow> rows_of(const Comparison& comparison, const trace::Trace& trace);
/// Those of a JSON that compare wrote, of one trace or of several. parse_error where it is none.
Result<std::vector<ComparedRow>> rows_of(const format::JsonValue& json, const std::string& path);

/// A table in GitHub's Markdown, and one in CSV (RFC 4180) with exact bytes.
std::string to_markdown(const std::vector<ComparedRow>& rows);
std::string to_csv(const std::vector<ComparedRow>& rows);

/// What each manager reserved and took, as bars side by side: one SVG.
std::string to_svg(const std::vector<ComparedRow>& rows);

/// A row of which a condition holds, and a sentence about it.
struct GateFailure {
  std::size_t row = 0;
  std::string words;
};

/// A condition under which a comparison fails: "reserved > 1.02x", "failures > 0", "reserved is
/// worse".
class Gate {
 public:
  /// Usage error where `words` are none.
  static Result<Gate> parse(const std::string& words);

  bool needs_baseline() const noexcept { return condition_ && condition_->is_relative(); }
  const std::string& words() const noexcept { return words_; }
  /// The rows of which the condition holds. A time fails only where all of its interval does, and a
  /// verdict is that against the first manager. Rows are found in `baseline` by trace, manager and
  /// device; where all of it has one device, the device does not matter. Usage error: a row is not
  /// in it.
  Result<std::vector<GateFailure>> failures(const std::vector<ComparedRow>& rows,
                                            const std::vector<ComparedRow>& baseline,
                                            const std::string& baseline_path) const;

 private:
  std::string words_, measure_;
  std::optional<Condition> condition_{};
  std::optional<Standing> standing_{};  ///< "is worse": there is no condition then.
};

/// JUnit: a suite, in it a case for each manager that serves a trace or does not, one for each of
/// its verdicts, and one for each gate. `failures` are those of the gates, in their order.
std::string to_junit(const std::vector<ComparedRow>& rows, const std::vector<Gate>& gates,
                     const std::vector<std::vector<GateFailure>>& failures);

}  // namespace emm::trial
