// Prints which clauses fail on each wrong manager: one line a mutant, "clause<TAB>wrong<TAB>over<TAB>failing...".

#include <cstdio>

#include "base/text.hpp"
#include "conformance/suite.hpp"
#include "wrong.hpp"

int main(int argc, char** argv) {
  using namespace emm;
  using namespace emm::conformance;
  for (const auto& mutant : mutants::all_mutants()) {
    if (argc > 1 && !matches(argv[1], mutant.clause)) continue;
    auto subject = mutants::subject_of(mutant);
    auto line = text::format("{}\t{}\t{}\t", mutant.clause, mutant.wrong, mutant.over);
    std::string words;
    for (const auto& one : run_suite(subject, {}).judged) {
      if (one.verdict.kind != Verdict::Kind::fail) continue;
      line += text::format("{} ", one.clause->id);
      if (argc > 2) words += to_text(Report{.subject = subject, .judged = {one}});
    }
    std::fputs((line + "\n" + words).c_str(), stdout);
    std::fflush(stdout);
  }
  return 0;
}
