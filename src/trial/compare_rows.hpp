#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_value.hpp"
#include "trial/compare.hpp"

namespace emm::trial {

/// What one manager did with one trace on one device: a row of a report, and what a gate judges.
/// Bytes are sums over the devices of the trace; times are nanoseconds an event.
struct ComparedRow {
  std::string trace, device, manager;
  std::uint64_t peak_live = 0, no_wait = 0, peak_reserved = 0;
  std::uint64_t failures = 0, hazards = 0, violations = 0;
  MedianInterval warm{}, first{};
  bool timed = true;  ///< Not so of the recorded manager.
};

/// The rows of a comparison: where the trace tells what the recorded manager reserved, that is the
/// first, "as recorded".
std::vector<ComparedRow> rows_of(const Comparison& comparison, const trace::Trace& trace);
/// Those of a JSON that compare wrote, of one trace or of several. parse_error where it is none.
Result<std::vector<ComparedRow>> rows_of(const format::JsonValue& json, const std::string& path);

/// A table in GitHub's Markdown, and one in CSV (RFC 4180) with exact bytes.
std::string to_markdown(const std::vector<ComparedRow>& rows);
std::string to_csv(const std::vector<ComparedRow>& rows);

/// A condition under which a comparison fails: "reserved > 1.02x", "failures > 0".
class Gate {
 public:
  /// Usage error where `words` are none.
  static Result<Gate> parse(const std::string& words);

  bool needs_baseline() const noexcept { return relative_; }
  /// A sentence for each row of which the condition holds. A time fails only where all of its
  /// interval does. Rows are found in `baseline` by trace, manager and device; where all of it has
  /// one device, the device does not matter. Usage error: a row is not in it.
  Result<std::vector<std::string>> failures(const std::vector<ComparedRow>& rows,
                                            const std::vector<ComparedRow>& baseline,
                                            const std::string& baseline_path) const;

 private:
  std::string words_, measure_;
  bool above_ = true, or_equal_ = false, relative_ = false;
  double bound_ = 0;
};

}  // namespace emm::trial
