#include "conformance/suite.hpp"

#include <algorithm>
#include <chrono>

#include "base/text_format.hpp"
#include "conformance/bench.hpp"

namespace emm::conformance {
namespace {

/// A rule that was seen broken while another clause was judged fails its own clause, once. The
/// other clause gets the verdict that it has without that rule.
void move_failures_to_their_clauses(Report& report) {
  for (auto& one : report.judged) {
    if (one.verdict.broken.empty()) continue;
    auto evidence = Verdict::from_bytes(one.verdict.evidence);
    if (!evidence) continue;
    one.shown_behind = *evidence;
    const auto named =
        std::find_if(report.judged.begin(), report.judged.end(),
                     [&](const Judged& other) { return other.clause->id == one.verdict.broken; });
    evidence->words = text::format("in {}: {}", one.clause->id, evidence->words);
    if (named == report.judged.end()) {
      evidence->broken = one.verdict.broken;
      one.verdict = *std::move(evidence);
      continue;
    }
    if (one.verdict.kind == Verdict::Kind::fail || one.verdict.kind == Verdict::Kind::inconclusive)
      one.behind = named->clause;
    if (one.verdict.kind == Verdict::Kind::fail)
      one.verdict = {.words = text::format("{} is broken here first", named->clause->id)};
    one.verdict.broken.clear();
    one.verdict.evidence.clear();
    if (named->verdict.kind == Verdict::Kind::fail) continue;
    named->verdict = *std::move(evidence);
    named->seen_in = one.clause;
  }
}

}  // namespace

std::string why_not_asked(const Clause& clause, const Subject& subject) {
  if (clause.scope > subject.promise) {
    return clause.scope == Scope::deflt ? "asked of the default manager alone"
                                        : "asked of managers that are host-only for host memory";
  }
  if (clause.level == Level::quirk && subject.promise == Scope::all) {
    return "a quirk of Numba's code; asked of bundled managers alone";
  }
  if (clause.of_class && !subject.is_class) return "asked of classes of Python's alone";
  if (subject.is_class && !clause.not_of_class.empty())
    return text::format("NBEP 7 cannot ask it: {}", clause.not_of_class);
  if (subject.foreign && !clause.not_through_abi.empty()) {
    return text::format("the plugin ABI cannot ask it: {}", clause.not_through_abi);
  }
  return {};
}

Verdict judge(const Clause& clause, const Subject& subject) {
  if (const auto why = why_not_asked(clause, subject); !why.empty()) {
    return {.kind = Verdict::Kind::not_applicable, .words = why};
  }
  auto bench = Bench::create(subject, clause.id);
  if (!bench) return {.words = describe(bench.error())};
  clause.check(**bench);
  return (*bench)->finish();
}

Scope promise_of(std::string_view manager) noexcept {
  const auto* entry = find_entry(manager);
  return entry != nullptr ? static_cast<Scope>(entry->promise) : Scope::all;
}

std::vector<const Clause*> select(const Selection& selection) {
  std::vector<const Clause*> chosen;
  for (const auto* group : clause_groups()) {
    for (const auto& clause : group->clauses) {
      if (clause.level > selection.level || (clause.of_class && !selection.of_class)) continue;
      const auto named = [&](const std::string& glob) { return matches(glob, clause.id); };
      if (selection.globs.empty() ||
          std::any_of(selection.globs.begin(), selection.globs.end(), named)) {
        chosen.push_back(&clause);
      }
    }
  }
  return chosen;
}

std::size_t Report::count(Verdict::Kind kind) const noexcept {
  return static_cast<std::size_t>(std::count_if(
      judged.begin(), judged.end(), [&](const Judged& one) { return one.verdict.kind == kind; }));
}

std::size_t Report::reached() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(judged.begin(), judged.end(),
                    [](const Judged& one) { return one.verdict.words != kInterrupted; }));
}

Report run_suite(const Subject& subject, const Selection& selection, const Judge& with,
                 const std::function<bool(const Clause&)>& before) {
  Report report{.subject = subject};
  bool goes_on = true;
  for (const auto* clause : select(selection)) {
    goes_on = goes_on && (!before || before(*clause));
    const auto begin = std::chrono::steady_clock::now();
    auto verdict = goes_on ? with(*clause, subject) : Verdict{.words = std::string(kInterrupted)};
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    report.judged.push_back({.clause = clause,
                             .verdict = std::move(verdict),
                             .ns = static_cast<std::uint64_t>(took.count())});
  }
  move_failures_to_their_clauses(report);
  return report;
}

}  // namespace emm::conformance
