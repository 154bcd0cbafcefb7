#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "conformance/suite.hpp"
#include "wrong_own.hpp"

namespace emm::mutants {
namespace {

using namespace emm::conformance;

bool is_kin(const Clause& clause, std::string_view other) {
  auto rest = clause.kin;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == other) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

TEST(Mutants, EveryClauseHasOne) {
  std::set<std::string_view> broken;
  for (const auto& mutant : all_mutants()) broken.insert(mutant.clause);
  for (const auto& mutant : all_own_mutants()) broken.insert(mutant.clause);
  for (const bool own : {false, true}) {
    for (const auto* clause : select({.own = own})) {
      EXPECT_EQ(broken.count(clause->id), 1u) << clause->id << " has no mutant that breaks it";
    }
  }
}

/// The clause fails, and besides it no clause but its kin.
void expect_caught(std::string_view id, const Report& report) {
  const auto* clause = find_clause(id);
  ASSERT_NE(clause, nullptr);
  for (const auto& one : report.judged) {
    if (one.clause == clause) {
      EXPECT_EQ(one.verdict.kind, Verdict::Kind::fail) << one.verdict.words;
    } else if (!is_kin(*clause, one.clause->id)) {
      EXPECT_NE(one.verdict.kind, Verdict::Kind::fail)
          << one.clause->id << " is no kin: " << to_text(Report{.subject = report.subject, .judged = {one}});
    }
  }
}

TEST(Mutants, EachWrongManagerIsCaughtByItsClauseAndByNoOthersThanItsKin) {
  for (const auto& mutant : all_mutants()) {
    SCOPED_TRACE(std::string(mutant.clause) + ", " + std::string(mutant.over) + ": " + std::string(mutant.wrong));
    const auto subject = subject_of(mutant);

    expect_caught(mutant.clause, run_suite(subject, {}));
  }
}

TEST(Mutants, EachWrongPartOfEmmctlIsCaughtByItsClauseAndByNoOthersThanItsKin) {
  for (const auto& mutant : all_own_mutants()) {
    SCOPED_TRACE(std::string(mutant.clause) + ": " + std::string(mutant.wrong));
    WrongOwn own;
    const auto subject = subject_of(mutant, own);

    expect_caught(mutant.clause, run_suite(subject, {.own = true}));
  }
}

}  // namespace
}  // namespace emm::mutants
