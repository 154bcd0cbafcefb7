#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "conformance/suite.hpp"
#include "wrong.hpp"

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

TEST(Mutants, EveryManagerClauseHasOne) {
  std::set<std::string_view> broken;
  for (const auto& mutant : all_mutants()) broken.insert(mutant.clause);
  for (const auto* clause : select({})) {
    EXPECT_EQ(broken.count(clause->id), 1u) << clause->id << " has no mutant that breaks it";
  }
}

TEST(Mutants, EachIsCaughtByItsClauseAndByNoOthersThanItsKin) {
  for (const auto& mutant : all_mutants()) {
    SCOPED_TRACE(std::string(mutant.clause) + ", " + std::string(mutant.over) + ": " + std::string(mutant.wrong));
    const auto* clause = find_clause(mutant.clause);
    ASSERT_NE(clause, nullptr);

    const auto subject = subject_of(mutant);
    const auto report = run_suite(subject, {});

    for (const auto& one : report.judged) {
      if (one.clause == clause) {
        EXPECT_EQ(one.verdict.kind, Verdict::Kind::fail) << one.verdict.words;
      } else if (!is_kin(*clause, one.clause->id)) {
        EXPECT_NE(one.verdict.kind, Verdict::Kind::fail)
            << one.clause->id << " is no kin: " << to_text(Report{.subject = subject, .judged = {one}});
      }
    }
  }
}

}  // namespace
}  // namespace emm::mutants
