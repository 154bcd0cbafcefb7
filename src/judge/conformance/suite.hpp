#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/clause.hpp"
#include "conformance/subject.hpp"
#include "conformance/verdict.hpp"

namespace emm::conformance {

/// Why a clause is not asked of a subject at all; empty if it is. It needs no factory.
std::string why_not_asked(const Clause& clause, const Subject& subject);

/// Judges one clause on one subject in this process. To judge a subject that may crash or hang,
/// call this in a child and send the verdict back as bytes.
Verdict judge(const Clause& clause, const Subject& subject);

struct Selection {
  std::vector<std::string> globs{};  ///< Patterns for ids. Empty selects all.
  Level level = Level::quirk;        ///< Selects clauses of this level and of more binding ones.
  bool of_class = false;             ///< Also those for classes of Python's alone.
};

/// Lists the selected clauses in the order of the catalogue.
std::vector<const Clause*> select(const Selection& selection);

struct Judged {
  const Clause* clause = nullptr;
  Verdict verdict{};
  std::uint64_t ns = 0;  ///< How long it took, by the host's clock.
  /// The clause that was being judged when this one was seen broken. Null: this one.
  const Clause* seen_in = nullptr;
  /// The clause whose rule was broken while this one was judged, which was then not judged to its
  /// end, and what showed that. Null: there was none.
  const Clause* behind = nullptr;
  Verdict shown_behind{};
};

struct Report {
  Subject subject{};
  std::vector<Judged> judged{};
  /// The command that judges the same manager again, to which `--clause ID` is added.
  std::string again{};
  std::string traces{};  ///< The folder that the traces of failures are written to; empty: none.

  /// The clauses that were asked before a signal ended the run.
  std::size_t reached() const noexcept;
  bool interrupted() const noexcept { return reached() < judged.size(); }
  std::size_t count(Verdict::Kind kind) const noexcept;
};

/// Runs a clause: judge(), or a child process.
using Judge = std::function<Verdict(const Clause&, const Subject&)>;

/// `before` is called for each clause. If it returns false, the run ends and the remaining clauses
/// are inconclusive.
Report run_suite(const Subject& subject, const Selection& selection, const Judge& with = judge,
                 const std::function<bool(const Clause&)>& before = {});

/// Shows a person failures in full, then what was not judged and why, then the counts.
std::string to_text(const Report& report);
/// Tells a person, in no more than 120 words if a clause failed, what is wrong, once for each
/// cause, and the command that shows it again.
std::string to_brief_text(const Report& report);
/// With `times` it includes how long each clause took, which differs between runs.
std::string to_json(const Report& report, bool times = false);  ///< "emmctl.conformance/1"
std::string to_junit(const Report& report, bool times = false);
std::string to_tap(const Report& report);  ///< TAP version 13

}  // namespace emm::conformance
