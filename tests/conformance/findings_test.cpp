#include "conformance/findings.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/text_format.hpp"

namespace emm::conformance {
namespace {

/// A report in which clauses fail as told.
class FindingsTest : public ::testing::Test {
 protected:
  void fails(std::string_view id, std::string done, std::string seen, std::string expected) {
    add(id, {.kind = Verdict::Kind::fail,
             .words = std::move(done),
             .seen = std::move(seen),
             .expected = std::move(expected)});
  }
  void add(std::string_view id, Verdict verdict) {
    const auto* clause = find_clause(id);
    ASSERT_NE(clause, nullptr) << id;
    report_.judged.push_back({.clause = clause, .verdict = std::move(verdict)});
  }
  static std::size_t words_of(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    std::size_t count = 0;
    while (words >> word) ++count;
    return count;
  }
  Report report_{.subject = {.manager = "mine.so"},
                 .again = "emmctl conformance --manager mine.so"};
};

TEST_F(FindingsTest, AnAnswerThatFailsManyClausesIsOne) {
  const std::string answer = "CUDA_ERROR_NOT_FOUND (500): \"nothing\"";
  fails("ERR-5", "flush()", answer, "success");
  fails("RST-3", "three resets, then flush()", answer, "success");
  fails("errors/passed_on", "flush(), while no call fails", answer, "CUDA_ERROR_INVALID_VALUE (1)");
  fails("threads/accounts", "blocks freed by two threads, then flush()", "it fails", "success");

  const auto findings = findings_of(report_);

  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].says, "flush() answers CUDA_ERROR_NOT_FOUND (500): \"nothing\"");
  EXPECT_EQ(findings[0].failed.size(), 4u);
  EXPECT_EQ(command_of(report_, findings[0]),
            "emmctl conformance --manager mine.so --clause ERR-5");
}

TEST_F(FindingsTest, WhatOneOperationLeavesIsOneWhateverTheCount) {
  fails("RST-3", "resets", "1 event made by free() is not released", "balanced");
  fails("accounts/balance", "all", "17 events made by free() are not released", "balanced");
  fails("accounts/refused_frees", "all",
        "1 registered region (4096 bytes) made by mempin(), 3 events made by free() are not "
        "released",
        "only what the driver refused to take back is left");

  const auto findings = findings_of(report_);

  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].says, "17 events made by free() are not released");
}

TEST_F(FindingsTest, TwoCausesStayTwo) {
  fails("ERR-5", "flush()", "CUDA_ERROR_NOT_FOUND (500)", "success");
  fails("RST-3", "resets", "1 event made by free() is not released", "balanced");
  fails("RST-7", "resets", "2 streams made by initialize() are not released", "balanced");
  fails("INF-1", "get_memory_info()", "CUDA_ERROR_UNKNOWN (999): \"none\"", "success");

  EXPECT_EQ(findings_of(report_).size(), 4u);
}

TEST_F(FindingsTest, AnswersWithoutWordsOfTheirOwnAreNotTakenForOne) {
  fails("PIN-10", "calls of cuMemHostUnregister by free()", "0", "1");
  fails("HST-1", "calls of cuMemHostAlloc", "0", "1");

  EXPECT_EQ(findings_of(report_).size(), 2u);
}

TEST_F(FindingsTest, AClauseThatMayFailWithAnotherStaysBehindIt) {
  fails("suite/fill", "filled a second time", "memory is not released: 0 of 23 blocks fit again",
        "all of them");
  fails("suite/steady", "the next of 200 blocks", "CUDA_ERROR_OUT_OF_MEMORY (2)", "success");
  fails("accounts/live_bytes", "live bytes after the first ended", "1024", "24");
  fails("random/program", "live bytes, seed 0", "1455694", "221794");
  fails("SEL-4", "interface_version", "2", "1");

  const auto findings = findings_of(report_);

  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].says, "memory is not released: 0 of 23 blocks fit again");
  EXPECT_EQ(findings[0].failed.size(), 4u);
  EXPECT_EQ(findings[1].shown->clause->id, "SEL-4");
}

TEST_F(FindingsTest, FreeNeighboursThatAreNotJoinedAreTheHeadline) {
  fails("accounts/balance", "all", "6 blocks of device memory (56623104 bytes) are not released",
        "balanced");
  fails("accounts/trim", "trim(0)",
        "two free neighbours are not joined: 2097152 bytes at 0x10 serve 512 and none for 2097152; "
        "35651584 bytes of the device are held",
        "0 or less");

  const auto findings = findings_of(report_);

  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].says,
            "two free neighbours are not joined: 2097152 bytes at 0x10 serve 512 and none for "
            "2097152");
}

TEST_F(FindingsTest, EachSlotThatCrashesIsOne) {
  const auto* harmless = find_clause("abi/harmless");
  fails("abi/harmless", "in DEV-1: run apart", "crashed by SIGSEGV in free, at operation 3: {}",
        "an end without harm");
  for (const auto* slot : {"free, at operation 12: {}", "flush"}) {
    add("RST-3", {.words = "abi/harmless is broken here"});
    auto& one = report_.judged.back();
    one.behind = harmless;
    one.shown_behind = {.kind = Verdict::Kind::fail,
                        .seen = std::string("crashed by SIGSEGV in ") + slot};
  }

  const auto findings = findings_of(report_);

  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].says, "crashed by SIGSEGV in free");
  EXPECT_EQ(findings[0].unjudged.size(), 1u);
  EXPECT_EQ(findings[1].says, "crashed by SIGSEGV in flush");
}

TEST_F(FindingsTest, AnAnswerWithoutAnAddressIsTheCause) {
  fails("deferral/nests", "mapped memory freed inside six deferrals", "its free is never made",
        "it is made");
  fails("random/program", "memhostalloc, seed 0",
        "./mine.so: memhostalloc of 7 bytes answered success without an address", "memory");
  fails("states/operations", "a deferral: mapped memory asked for",
        "./mine.so: memhostalloc of 4096 bytes answered success without an address", "memory");

  const auto findings = findings_of(report_);

  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].says, "memhostalloc() answers success without an address");
  EXPECT_EQ(findings[0].failed.size(), 2u);
}

TEST_F(FindingsTest, OneFindingIsShownWhole) {
  const std::string done =
      "fork(), with another thread in memalloc(), small, again and again, its driver call 2, in "
      "nested deferrals";
  fails("states/forks", done, "trim() hangs in the child", "it goes on");

  EXPECT_NE(to_brief_text(report_).find(done + "\n"), std::string::npos);
}

TEST_F(FindingsTest, TheBriefTextIsShortHoweverMuchIsWrong) {
  int number = 0;
  for (const auto* group : clause_groups()) {
    for (const auto& clause : group->clauses) {
      std::string seen = "something else each time";
      for (int i = 0; i <= number % 60; ++i) seen += " word";
      seen += std::string(1, static_cast<char>('a' + number % 26));
      fails(clause.id, std::string(seen), seen, seen);
      ++number;
    }
  }

  const auto text = to_brief_text(report_);

  EXPECT_LE(words_of(text), 120u) << text;
  EXPECT_NE(text.find("more findings"), std::string::npos) << text;
  EXPECT_NE(text.find("  again     emmctl conformance --manager mine.so --clause "),
            std::string::npos);
}

TEST_F(FindingsTest, SoIsTheBriefTextOfAManagerThatPasses) {
  const std::string reason = "the manager lends no memory of this kind to more than one context";
  for (const auto* group : clause_groups()) {
    for (const auto& clause : group->clauses) {
      const auto size = report_.judged.size();
      add(clause.id, {.kind = size % 2 == 0 ? Verdict::Kind::pass : Verdict::Kind::not_applicable,
                      .words = text::format("{} {}", reason, size % 20)});
    }
  }

  const auto text = to_brief_text(report_);

  EXPECT_GT(words_of(to_text(report_)), 120u);
  EXPECT_LE(words_of(text), 120u) << text;
  EXPECT_EQ(text.find("mine.so: "), 0u) << "the verdict first: " << text;
  EXPECT_NE(text.find(" more reasons\n"), std::string::npos) << text;
  EXPECT_NE(text.find("--more shows which clauses were not judged.\n"), std::string::npos) << text;
}

TEST_F(FindingsTest, AnInterruptedReportSaysHowFarItCame) {
  add("RST-3", {.kind = Verdict::Kind::pass});
  add("RST-7", {.words = std::string(kInterrupted)});

  EXPECT_NE(to_brief_text(report_).find("interrupted: 1 of 2 clauses were judged\n"),
            std::string::npos);
  EXPECT_NE(to_json(report_).find("\"interrupted\": true"), std::string::npos);
  EXPECT_NE(to_junit(report_).find("1 of 2 clauses were judged"), std::string::npos);
  EXPECT_NE(to_tap(report_).find("# interrupted: 1 of 2 clauses were judged\n"), std::string::npos);
}

}  // namespace
}  // namespace emm::conformance
