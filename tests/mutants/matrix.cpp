// Prints which clauses fail on each wrong manager: one line a mutant,
// "clause<TAB>wrong<TAB>over<TAB>failing...". With `list` nothing is judged. With `operators`,
// which clause first fails on each mechanical one: "name<TAB>clause". With `combinations`, each
// cell of the generated matrices: "clause<TAB>row<TAB>column".

#include <cstdio>

#include "base/text_format.hpp"
#include "conformance/combinations.hpp"
#include "conformance/suite.hpp"
#include "operators.hpp"
#include "strangers.hpp"

int main(int argc, char** argv) {
  using namespace emm;
  using namespace emm::conformance;
  if (argc > 1 && std::string_view(argv[1]) == "operators") {
    for (const auto& mistake : mutants::all_operators()) {
      const auto* by = mutants::first_that_fails(mutants::subject_of(mistake));
      std::fputs(
          text::format("{}\t{}\n", mistake.name(), by == nullptr ? std::string_view() : by->id)
              .c_str(),
          stdout);
    }
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "combinations") {
    const auto show = [](std::string_view clause, std::string_view row, std::string_view column) {
      std::puts(text::format("{}\t{}\t{}", clause, row, column).c_str());
    };
    for_each_state_cell(show);
    for_each_handover_cell(show);
    for_each_refusal_cell(show);
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "strangers") {
    for (const auto& stranger : mutants::all_strangers()) {
      if (argc > 2 && std::string_view(argv[2]) != "-" && !matches(argv[2], stranger.wrong))
        continue;
      if (argc > 2 && std::string_view(argv[2]) == "-") {
        std::puts(std::string(stranger.wrong).c_str());
        continue;
      }
      auto line = text::format("{}\t{}\t", stranger.wrong, stranger.over);
      for (const auto& one : run_suite(mutants::subject_of(stranger), {}).judged) {
        if (one.verdict.kind == Verdict::Kind::fail) line += text::format("{} ", one.clause->id);
      }
      std::fputs((line + "\n").c_str(), stdout);
      std::fflush(stdout);
    }
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "list") {
    const auto show = [](std::string_view clause, std::string_view wrong, std::string_view over) {
      std::puts(text::format("{}\t{}\t{}\t", clause, wrong, over).c_str());
    };
    for (const auto& mutant : mutants::all_mutants())
      show(mutant.clause, mutant.wrong, mutant.over);
    return 0;
  }
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
