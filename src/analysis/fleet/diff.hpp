#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/condition.hpp"
#include "base/members.hpp"
#include "fleet/rank.hpp"
#include "format/brief.hpp"

namespace emm::fleet {

/// An allocation of device memory.
struct Allocation {
  std::uint32_t birth = 0;  ///< An event.
  std::uint32_t death = 0;  ///< An event; trace::kNever if live at the end.
  std::uint32_t site = 0;
  std::uint64_t size = 0;
};

/// One run of a program.
struct RecordedRun {
  std::string name;
  std::vector<Allocation> allocations;  ///< By birth, without what lived before the recording.
  std::uint64_t events = 0, refused = 0, steps = 0;
  std::uint64_t before = 0;  ///< Bytes that lived before the recording, which no request asked for.
  std::uint64_t peak_live = 0, peak_count = 0, live_at_end = 0;
  std::uint32_t peak_event = 0;
  std::optional<std::uint64_t> reserved;  ///< The peak of what its manager held.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> step_events{};  ///< First and last event.
};
RecordedRun run_of(const inspect::Recording& recording, Sites& sites);

/// How the runs differ in a finding.
enum class Change : std::uint8_t {
  kept,      ///< Allocations that live to the end, unlike those of A.
  larger,    ///< The same requests, of another size.
  more,      ///< More requests at call sites that A has too.
  added,     ///< Requests at call sites that A does not have.
  longer,    ///< The same requests, of which more are live at B's peak.
  fewer,     ///< Requests of A that B does not make, or makes less often.
  inserted,  ///< A stretch of requests that A does not make, such as more steps.
  removed,   ///< A stretch of requests of A that B does not make.
};
std::string_view name(Change change) noexcept;

/// How B differs at one call site.
struct SiteChange {
  std::uint32_t site = 0;
  std::uint64_t count_a = 0, count_b = 0;  ///< Allocations in all; for `kept`, live at the end.
  std::uint64_t asked_a = 0, asked_b = 0;  ///< For `larger`: requested bytes.
  std::int64_t bytes = 0;                  ///< At the peaks; for `kept`, at the end.
  std::uint32_t since = 0;   ///< The first event of B that differs; for `fewer`, of A.
  std::uint64_t a_step = 0;  ///< For `kept`: the number in each step; 0 if it varies.
  bool again = false;        ///< For `kept`: spread over half of the run or more.
};

/// Call sites that differ in one way and by one ratio, of sizes or of counts.
struct Finding {
  Change change = Change::larger;
  double times = 1;
  std::int64_t bytes = 0;
  std::vector<SiteChange> sites;  ///< The most bytes first; empty for a stretch.
  std::uint32_t since = 0;
  std::uint64_t count = 0;  ///< Requests of the stretch.
  std::uint32_t until = 0;  ///< Its last event.
  bool at_end = false;      ///< The stretch is the end of the run.
};

/// What is live at the peaks from one call site.
struct AtPeaks {
  std::uint32_t site = 0;
  std::uint64_t count_a = 0, count_b = 0, bytes_a = 0, bytes_b = 0;
  std::uint64_t size = 0;  ///< Set if there is no call site.
  std::uint32_t since = 0;
  bool differs = false;  ///< Whether `since` is set.
};
EMM_MEMBERS_OF(AtPeaks, count_a, bytes_a, count_b, bytes_b)

/// How run B differs from run A.
struct Diff {
  RecordedRun a, b;
  std::uint64_t matched = 0;
  bool by_site = false;           ///< Requests were matched by call site; else by size.
  std::vector<Finding> findings;  ///< By bytes, the most first.
  std::vector<AtPeaks> at_peaks;  ///< Those that differ, the greatest change first.

  bool is_nothing() const noexcept;
};
Diff diff(RecordedRun a, RecordedRun b);

/// Returns what --fail-if may measure of two runs, in the grammar of `compare`.
std::span<const MeasureName> diff_measures() noexcept;
/// Returns a sentence if the condition holds, else nothing. A's value is the baseline.
std::optional<std::string> failure(const Condition& condition, const Diff& diff);

/// Returns the sentence of a condition that does not hold: what was measured, and against what.
std::string passed(const Condition& condition, const Diff& diff);

struct DiffShown {
  std::size_t top = 10;
};
/// Says in one breath how they differ. The caller adds the command.
format::Brief brief(const Diff& diff, const Sites& sites);
std::string to_text(const Diff& diff, const Sites& sites, const DiffShown& shown);
/// "emmctl.diff/1"
std::string to_json(const Diff& diff, const Sites& sites, const std::vector<std::string>& failures);

}  // namespace emm::fleet
