#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/condition.hpp"
#include "format/brief.hpp"
#include "format/json_value.hpp"
#include "trial/compare.hpp"
#include "trial/verdict.hpp"

namespace emm::trial {

/// The results of one manager with one trace on one device: a row of a report, which gates judge.
/// Bytes are sums over the devices of the trace; times are nanoseconds per event.
struct ComparedRow {
  std::string trace, device, manager;
  std::uint64_t peak_live = 0, no_wait = 0, peak_reserved = 0;
  std::uint64_t failures = 0, hazards = 0, violations = 0;
  MedianInterval warm{}, first{}, instructions{};
  bool timed = true;       ///< False for the recorded manager.
  std::string left_out{};  ///< What it did not serve, as not_served() says it; empty if nothing.
  /// Against each manager before it and against the recorded one. Empty if the row was read from a
  /// file.
  std::vector<PairVerdict> verdicts{};
};

/// The name of the recorded manager ("PyTorch as recorded") and its peak of reserved bytes.
struct RecordedPeak {
  std::string name;
  std::uint64_t bytes = 0;
  bool refused = false;  ///< It refused requests that the bounds of the trace include.

  /// Returns why it reserved less than `bound`. Empty if it did not.
  std::optional<Below> below(std::uint64_t bound, std::uint64_t peak_live) const;
};
/// Returns the peak of the recorded manager. Empty if the trace does not tell it.
std::optional<RecordedPeak> recorded_peak(const trace::Trace& trace);

/// Returns the rows of a comparison. The recorded manager comes first if the trace tells its peak.
std::vector<ComparedRow> rows_of(const Comparison& comparison, const trace::Trace& trace);
/// Returns the rows of JSON that compare wrote. Errors: parse_error if `json` is something else.
Result<std::vector<ComparedRow>> rows_of(const format::JsonValue& json, const std::string& path);

/// Says in one breath which manager is the better one. `not_compared` are the managers that were
/// left out because none was named.
format::Brief brief(const std::vector<ComparedRow>& rows,
                    const std::vector<std::string>& not_compared);
/// Names the managers that take memory before the first request: "rmm-pool takes half of what is
/// free before the first request". Empty if there are none.
std::string preallocation_words(const std::vector<ComparedRow>& rows);

/// Write a table: in GitHub's Markdown, and in CSV (RFC 4180) with exact bytes.
std::string to_markdown(const std::vector<ComparedRow>& rows);
std::string to_csv(const std::vector<ComparedRow>& rows);

/// Draws the bytes and the time of each manager as bars side by side, as one SVG.
std::string to_svg(const std::vector<ComparedRow>& rows);

/// A row for which a condition holds, and a sentence about it.
struct GateFailure {
  std::size_t row = 0;
  std::string words;
};

/// A condition under which a comparison fails: "reserved > 1.02x", "failures > 0", "reserved is
/// worse".
class Gate {
 public:
  /// Errors: usage, if `words` are not a condition.
  static Result<Gate> parse(const std::string& words);

  bool needs_baseline() const noexcept { return condition_ && condition_->is_relative(); }
  const std::string& words() const noexcept { return words_; }
  /// Returns the rows for which the condition holds. For a time it must hold for the whole
  /// interval; a verdict is the one against the first manager. Rows are found in `baseline` by
  /// trace and manager, and also by device if both sides have several devices. Of the
  /// others, `passed` gets a sentence that says against what. Errors: usage, if a row is not in it.
  Result<std::vector<GateFailure>> failures(const std::vector<ComparedRow>& rows,
                                            const std::vector<ComparedRow>& baseline,
                                            const std::string& baseline_path,
                                            std::vector<std::string>& passed) const;

 private:
  std::string words_, measure_;
  std::optional<Condition> condition_{};
  std::optional<Standing> standing_{};  ///< For "is worse"; there is no condition then.
};

/// Writes a JUnit suite. Each manager has a case for whether it serves the trace, one for each of
/// its verdicts, and one for each gate. `failures` are those of the gates, in their order.
std::string to_junit(const std::vector<ComparedRow>& rows, const std::vector<Gate>& gates,
                     const std::vector<std::vector<GateFailure>>& failures);

}  // namespace emm::trial
