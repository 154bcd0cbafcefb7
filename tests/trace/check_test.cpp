#include "exchange/check.hpp"

#include <gtest/gtest.h>

#include "base/text_format.hpp"
#include "tests/trace/trace_text.hpp"

namespace emm::trace {
namespace {

std::string findings(std::string_view text, const ReadOptions& options = {}) {
  const auto source = format::ByteSource::memory(text, "x.json");
  const auto report = check(*source, options);
  if (!report) return "refused: " + describe(report.error());
  std::string out;
  for (const auto& finding : report->findings) {
    out += finding.severity == Finding::Severity::error ? "error: " : "warning: ";
    out += finding.words + "\n";
  }
  EXPECT_EQ(report->errors + report->warnings, report->findings.size());
  return out;
}

TEST(Check, ATraceThatIsWellHasNoFindings) {
  EXPECT_EQ(
      findings(with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":5}\n{\"op\":\"free\",\"id\":1}"
                           "\n{\"op\":\"end\",\"events\":2,\"live\":0,\"live_bytes\":0}\n")),
      "");
}

TEST(Check, ListsEveryErrorAndNotOnlyTheFirst) {
  EXPECT_EQ(
      findings(with_header("{\"op\":\"free\",\"id\":1}\n\n{\"op\":\"rest\"}\n{\"op\"\n{\"op\":"
                           "\"free\",\"id\":2}\n{\"op\":\"end_defer_cleanup\"}\n{\"op\":\"re")),
      "error: x.json:2: free of id 1, which nothing made: expected a memalloc before\n"
      "error: x.json:3: a blank line: expected an operation on each line\n"
      "error: x.json:4:7: \"op\" is \"rest\": expected \"reset\"\n"
      "error: x.json:5:6: the line ends inside a value: expected a whole JSON object on each line\n"
      "error: x.json:7: end_defer_cleanup: expected a defer_cleanup before it in its context\n"
      "error: x.json:8: the file ends inside a line\n");
}

TEST(Check, ADocumentIsJudgedUpToWhereItBreaks) {
  EXPECT_EQ(findings("{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"events\":[\n{\"op\":"
                     "\"free\",\"id\":1},\n{]}"),
            "error: x.json:2: free of id 1, which nothing made: expected a memalloc before\n"
            "error: x.json:3:2: not JSON: syntax error while parsing object key - unexpected ']'; "
            "expected string literal\n");
}

TEST(Check, WhatIsNoTraceIsRefused) { EXPECT_EQ(findings("nonsense").substr(0, 9), "refused: "); }

TEST(Check, WarnsOfWhatAPersonShouldLookAt) {
  EXPECT_EQ(
      findings("{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"complete\":true}\n"
               "{\"op\":\"memalloc\",\"id\":1,\"size\":0,\"time_ns\":50}\n{\"op\":\"memalloc\","
               "\"id\":2,\"size\":4096,\"addr\":\"0x1000\",\"time_ns\":20}\n"
               "{\"op\":\"memalloc\",\"id\":3,\"size\":16,\"addr\":\"0x1ff0\"}\n{\"op\":"
               "\"memalloc\",\"id\":4,\"size\":16,\"addr\":\"0x2000\"}\n"
               "{\"op\":\"thread_end\",\"thread\":9}\n{\"op\":\"thread_begin\"}\n{\"op\":\"thread_"
               "begin\"}\n{\"op\":\"defer_cleanup\"}\n"),
      "warning: x.json:1: \"requires\" lacks \"threads\", which the trace uses: expected it to be "
      "named\n"
      "warning: x.json:2: 4 allocations of 4128 bytes are never freed, id 1 first: expected a free "
      "of each\n"
      "warning: x.json:2: memalloc of 0 bytes: expected a size that every manager serves\n"
      "warning: x.json:3: \"time_ns\" is 20, and was 50 before in its thread: expected time to go "
      "on\n"
      "warning: x.json:4: id 3 is recorded at 0x1ff0, where id 2 of line 3 lives: expected free "
      "memory\n"
      "warning: x.json:6: thread_end of a thread that has not begun: expected a thread_begin "
      "before\n"
      "warning: x.json:8: thread_begin of a thread that has begun: expected a thread_end between\n"
      "warning: x.json:9: thread  has no thread_end: expected one\n"
      "warning: x.json:9: 1 defer_cleanup left open in context without name: expected "
      "end_defer_cleanup\n"
      "warning: x.json:9: no end in a trace that says it is complete: expected the operation "
      "end\n");
}

TEST(Check, TheCountsOfEndAreThoseOfTheTrace) {
  EXPECT_EQ(
      findings(with_header(
          "{\"op\":\"memalloc\",\"id\":1,\"size\":5}\n{\"op\":\"memalloc\",\"id\":2,\"size\":7,"
          "\"result\":\"oom\"}\n"
          "{\"op\":\"end\",\"events\":3,\"live\":2,\"live_bytes\":12}\n{\"op\":\"reset\"}\n")),
      "warning: x.json:4: end says \"events\" is 3: expected 2\n"
      "warning: x.json:4: end says \"live\" is 2: expected 1\n"
      "warning: x.json:4: end says \"live_bytes\" is 12: expected 5\n"
      "warning: x.json:5: reset after end: expected end to be the last operation\n");
}

TEST(Check, AResetEndsWhatIsNotFreed) {
  EXPECT_EQ(
      findings(with_header(
          "{\"op\":\"memalloc\",\"id\":1,\"size\":5,\"addr\":\"0x1000\"}\n{\"op\":\"reset\"}\n"
          "{\"op\":\"memalloc\",\"id\":2,\"size\":5,\"addr\":\"0x1000\"}\n{\"op\":\"free\",\"id\":"
          "2}\n{\"op\":\"free\",\"id\":1}\n")),
      "");
}

TEST(Check, DoesNotJudgeTheOrderOfLinesThatSeqSorts) {
  EXPECT_EQ(findings(with_header("{\"op\":\"free\",\"seq\":2,\"id\":1,\"time_ns\":9}\n{\"op\":"
                                 "\"memalloc\",\"seq\":1,\"id\":1,\"size\":5,\"time_ns\":5}\n")),
            "");
}

TEST(Check, ListsNoMoreThanTheLimitAndCountsAll) {
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += text::format("{\"op\":\"free\",\"id\":{}}\n", i);
  const auto text = with_header(lines);
  const auto source = format::ByteSource::memory(text, "x.json");

  const auto report = check(*source, {}, 10);

  ASSERT_TRUE(report);
  EXPECT_EQ(report->errors, 50u);
  EXPECT_EQ(report->findings.size(), 10u);
}

TEST(Check, TheExamplesAreWell) {
  for (const char* name : {"conformance.json", "recorded.jsonl"}) {
    const auto source =
        format::ByteSource::open(std::string(EMM_SOURCE_DIR "/traces/examples/") + name);
    ASSERT_TRUE(source);

    const auto report = check(**source);

    ASSERT_TRUE(report) << describe(report.error());
    for (const auto& finding : report->findings) ADD_FAILURE() << finding.words;
    EXPECT_EQ(report->leaked, 0u);
  }
}

TEST(Check, AResetOfOneDeviceEndsNothingOnAnother) {
  const auto text =
      std::string(
          "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"requires\":[\"multi-device\"]}\n") +
      "{\"op\":\"memalloc\",\"id\":1,\"size\":5,\"device\":1}\n"
      "{\"op\":\"memalloc\",\"id\":2,\"size\":7,\"device\":2}\n"
      "{\"op\":\"reset\",\"device\":1}\n"
      "{\"op\":\"end\",\"events\":3,\"live\":1,\"live_bytes\":7}\n";

  EXPECT_EQ(findings(text),
            "warning: x.json:3: 1 allocations of 7 bytes are never freed, id 2 first: expected a "
            "free of each\n");
}

TEST(Check, AsksForNoFeatureOfSeveralDevicesWhereAllMemoryIsOnOne) {
  EXPECT_EQ(
      findings(with_header(
          "{\"op\":\"thread_begin\"}\n{\"op\":\"memalloc\",\"id\":1,\"size\":5,\"device\":3}\n"
          "{\"op\":\"free\",\"id\":1}\n{\"op\":\"thread_end\"}\n")),
      "");
}

}  // namespace
}  // namespace emm::trace
