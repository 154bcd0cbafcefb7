#include <gtest/gtest.h>

#include <string>

#include "conformance/suite.hpp"
#include "wrong.hpp"

namespace emm::mutants {
namespace {

using namespace emm::conformance;

/// The clause fails, and of the others only those that may fail with it.
void expect_caught(std::string_view id, const Report& report) {
  const auto* clause = find_clause(id);
  ASSERT_NE(clause, nullptr);
  for (const auto& one : report.judged) {
    if (one.clause == clause) {
      // A rule that is watched throughout may have been broken first, and is failed instead.
      const bool is_broken_first =
          one.verdict.words.find("is broken here first") != std::string::npos &&
          report.count(Verdict::Kind::fail) > 0;
      EXPECT_TRUE(one.verdict.kind == Verdict::Kind::fail || is_broken_first) << one.verdict.words;
    } else if (!may_also_fail(*one.clause, *clause)) {
      EXPECT_NE(one.verdict.kind, Verdict::Kind::fail)
          << one.clause->id << " may not fail with it: "
          << to_text(Report{.subject = report.subject, .judged = {one}});
    }
  }
}

TEST(MayFailWith, NamesAllOtherClausesThatAWrongManagerFails) {
  for (const auto& mutant : all_mutants()) {
    SCOPED_TRACE(std::string(mutant.clause) + ", " + std::string(mutant.over) + ": " +
                 std::string(mutant.wrong));
    const auto subject = subject_of(mutant);

    expect_caught(mutant.clause, run_suite(subject, {}));
  }
}

}  // namespace
}  // namespace emm::mutants
