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

/// Judges one clause on one subject in this process. To judge a subject that may crash or hang,
/// call this in a child and send the verdict back as bytes.
Verdict judge(const Clause& clause, const Subject& subject);

struct Selection {
  std::vector<std::string> globs{};  ///< Patterns for ids. Empty selects all.
  Level level = Level::quirk;        ///< Selects clauses of this level and of more binding ones.
  bool own = false;                  ///< Selects emmctl's own promises instead of a manager's.
};

/// Lists the selected clauses in the order of the catalogue.
std::vector<const Clause*> select(const Selection& selection);

struct Judged {
  const Clause* clause = nullptr;
  Verdict verdict{};
  std::uint64_t ns = 0;  ///< How long it took, by the host's clock.
};

struct Report {
  Subject subject{};
  bool own = false;
  std::vector<Judged> judged{};

  std::size_t count(Verdict::Kind kind) const noexcept;
};

/// Runs a clause: judge(), or a child process.
using Judge = std::function<Verdict(const Clause&, const Subject&)>;

/// `before` is called for each clause. If it returns false, the run ends and the remaining clauses
/// are inconclusive.
Report run_suite(const Subject& subject, const Selection& selection, const Judge& with = judge,
                 const std::function<bool(const Clause&)>& before = {});

/// For a person: shows failures in full, then what was not judged and why, then the counts.
std::string to_text(const Report& report);
/// With `times` it includes how long each clause took, which differs between runs.
std::string to_json(const Report& report, bool times = false);  ///< "emmctl.conformance/1"
std::string to_junit(const Report& report, bool times = false);
std::string to_tap(const Report& report);  ///< TAP version 13

}  // namespace emm::conformance
