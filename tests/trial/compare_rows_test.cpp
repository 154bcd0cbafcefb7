#include "trial/compare_rows.hpp"

#include <gtest/gtest.h>

namespace emm::trial {
namespace {

ComparedRow row(std::string manager, std::uint64_t reserved, double ns = 100) {
  return {.trace = "a/x.json",
          .device = "sim",
          .manager = std::move(manager),
          .peak_live = 1000,
          .no_wait = 1000,
          .peak_reserved = reserved,
          .warm = {.median = ns, .low = ns - 5, .high = ns + 5, .confidence = 0.95}};
}

std::vector<GateFailure> failures(const std::string& words, const std::vector<ComparedRow>& rows,
                                  const std::vector<ComparedRow>& baseline = {}) {
  const auto gate = Gate::parse(words);
  EXPECT_TRUE(gate) << words;
  std::vector<std::string> passed;
  const auto found = gate->failures(rows, baseline, "base.json", passed);
  EXPECT_TRUE(found);
  return *found;
}

TEST(Gate, HoldsAtItsBoundAndFailsAboveIt) {
  const std::vector<ComparedRow> baseline{row("pool", 1000)};

  EXPECT_TRUE(failures("reserved > 1.02x", {row("pool", 1020)}, baseline).empty());
  EXPECT_EQ(failures("reserved > 1.02x", {row("pool", 1021)}, baseline).size(), 1u);
  EXPECT_EQ(failures("reserved >= 1.02x", {row("pool", 1020)}, baseline).size(), 1u);
}

TEST(Gate, TakesSizesWithoutABaseline) {
  EXPECT_EQ(failures("reserved>2KiB", {row("a", 2048), row("b", 2049)}).size(), 1u);
  EXPECT_EQ(failures("failures > 0", {row("a", 1)}).size(), 0u);
}

TEST(Gate, FailsATimeOnlyWhereAllOfItsIntervalIsBeyondTheSavedOne) {
  const std::vector<ComparedRow> baseline{row("pool", 1, 100)};  // 95 to 105

  EXPECT_TRUE(failures("ns_per_event > 1.05x", {row("pool", 1, 115)}, baseline).empty());
  EXPECT_EQ(failures("ns_per_event > 1.05x", {row("pool", 1, 116)}, baseline).size(), 1u);
}

TEST(Gate, FindsTheSameFileByAnotherPathAndRefusesWhatIsNotThere) {
  auto moved = row("pool", 1000);
  moved.trace = "b/x.json";

  EXPECT_TRUE(failures("reserved > 1x", {row("pool", 1000)}, {moved}).empty());
  std::vector<std::string> passed;
  EXPECT_FALSE(
      Gate::parse("reserved > 1x")->failures({row("other", 1)}, {moved}, "base.json", passed));
}

TEST(Gate, IsNotWordsOfAnotherKind) {
  for (const std::string words : {"", "reserved", "speed > 1", "reserved > ", "reserved > -1x",
                                  "failures > 2KiB", "reserved > 1.x2"}) {
    EXPECT_FALSE(Gate::parse(words)) << words;
  }
}

TEST(Rows, AreTheSameInMarkdownAndCsv) {
  auto odd = row("a|b,\"c\"", 1500);

  EXPECT_NE(to_markdown({odd}).find("| a\\|b,\"c\" | 1.46 KiB | 1.500 | 1.500 | 100.0 |"),
            std::string::npos);
  EXPECT_NE(to_csv({odd}).find("a/x.json,sim,\"a|b,\"\"c\"\"\",1000,1000,1500,100,95,105,0,0,0,0"),
            std::string::npos);
}

TEST(Rows, OfAFileThatIsNoComparisonAreAnError) {
  const auto json = format::parse_json(R"({"schema":"emmctl.replay/1"})");
  ASSERT_TRUE(json);

  EXPECT_FALSE(rows_of(*json, "x.json"));
}

TEST(Gate, JudgesTheVerdictAgainstTheFirstManager) {
  auto slower = row("pool", 1);
  slower.verdicts = {{.manager = "pool",
                      .against = "cudart",
                      .measure = "ns_per_event",
                      .standing = Standing::worse,
                      .place = 0},
                     {.manager = "pool",
                      .against = "default",
                      .measure = "ns_per_event",
                      .standing = Standing::better,
                      .place = 1}};

  EXPECT_EQ(failures("ns_per_event is worse", {row("cudart", 1), slower}).size(), 1u);
  EXPECT_TRUE(failures("ns_per_event is better", {row("cudart", 1), slower}).empty());
  EXPECT_TRUE(failures("reserved is worse", {row("cudart", 1), slower}).empty());
}

TEST(ToJunit, HasACaseForWhatEachManagerServesAndForEachCondition) {
  const std::vector<ComparedRow> rows{row("cudart", 1000), row("pool", 2000)};
  const std::vector<Gate> gates{*Gate::parse("reserved > 1500")};

  std::vector<std::string> passed;
  const auto junit = to_junit(rows, gates, {*gates[0].failures(rows, {}, "", passed)});

  EXPECT_NE(junit.find("tests=\"4\" failures=\"1\" skipped=\"0\""), std::string::npos) << junit;
  EXPECT_NE(junit.find("name=\"pool: --fail-if reserved &gt; 1500\"><failure"), std::string::npos)
      << junit;
}

TEST(RecordedPeak, BelowABoundSaysWhy) {
  const RecordedPeak waits{.name = "as recorded", .bytes = 150};
  const RecordedPeak refused{.name = "as recorded", .bytes = 90, .refused = true};

  EXPECT_EQ(waits.below(200, 100), Below::waits) << "less than the no-wait need, not than was live";
  EXPECT_EQ(waits.below(150, 100), std::nullopt);
  EXPECT_EQ(waits.below(160, 160), Below::not_counted);
  EXPECT_EQ(refused.below(100, 100), Below::not_served);
}

}  // namespace
}  // namespace emm::trial
