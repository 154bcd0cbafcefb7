#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

Imported read_log(std::string_view file, bool partial = false) {
  return import_text("rmm-csv", file, partial);
}

TEST(RmmCsv, MakesOperationsOfTheModernLog) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "23150,01:54:00.576568,allocate,0x700000000000,10302908,0\n"
      "23150,01:54:00.576569,allocate failure,(nil),99999999999999,0\n"
      "23150,01:54:00.576607,free,0x700000000000,10302908,0x55aabbcc0010\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10302908 addr=0x700000000000 thread=23150 time_ns=0 @2\n"
            "memalloc id=2 size=99999999999999 thread=23150 time_ns=1000 oom @3\n"
            "free id=1 stream=0x55aabbcc0010 thread=23150 time_ns=39000 @4\n"
            "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 3: used 3");
  EXPECT_TRUE(log.counts.notes.empty());
  EXPECT_TRUE(log.finished);
}

TEST(RmmCsv, ReadsV014WhichHasNoThreadAndAColonBeforeMicroseconds) {
  const auto log = read_log(
      "Time,Action,Pointer,Size,Stream\n"
      "10:00:00:000005,allocate,0x7f0000000000,256,0x0\n"
      "10:00:01:000005,free,0x7f0000000000,256,0x0\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=256 addr=0x7f0000000000 time_ns=0 @2\n"
            "free id=1 time_ns=1000000000 @3\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(RmmCsv, ReadsTheColonDialectWithThreadsAndTheNullFormsOfTheFmtEra) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "7,10:00:00:000000,allocate,0x7f0000000000,256,0x0\n"
      "8,10:00:00:000001,allocate failure,0x0,512,0x1\n"
      "8,10:00:00:000002,free,0x7f0000000000,256,0x2\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=256 addr=0x7f0000000000 thread=7 time_ns=0 @2\n"
            "memalloc id=2 size=512 stream=legacy thread=8 time_ns=1000 oom @3\n"
            "free id=1 stream=per_thread thread=8 time_ns=2000 @4\n"
            "end events=3 live=0 live_bytes=0");
}

TEST(RmmCsv, CountsTheDaysAsTheTimeOfDayWraps) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,23:59:59.999999,allocate,0x100,1,0\n"
      "1,00:00:00.000001,allocate,0x200,1,0\n"
      "2,23:59:59.999998,allocate,0x300,1,0\n"
      "1,12:00:00.000000,allocate,0x400,1,0\n"
      "1,00:00:00.000000,free,0x400,1,0\n");

  ASSERT_EQ(log.operations.size(), 6u);
  EXPECT_NE(log.operations[1].find("time_ns=2000 "), std::string::npos) << log.operations[1];
  EXPECT_NE(log.operations[2].find("time_ns=0 "), std::string::npos)
      << "stamped before the first row";
  EXPECT_NE(log.operations[3].find("time_ns=43200000001000 "), std::string::npos)
      << log.operations[3];
  EXPECT_NE(log.operations[4].find("time_ns=86400000001000 "), std::string::npos)
      << "the second midnight";
}

TEST(RmmCsv, GivesAnAddressThatLivesAgainAnIdOfItsOwn) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,00:00:00.000000,allocate,0x100,16,0\n"
      "1,00:00:00.000001,free,0x100,16,0\n"
      "1,00:00:00.000002,allocate,0x100,32,0\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=0 @2\n"
            "free id=1 thread=1 time_ns=1000 @3\n"
            "memalloc id=2 size=32 addr=0x100 thread=1 time_ns=2000 @4\n"
            "end events=3 live=1 live_bytes=32");
}

TEST(RmmCsv, CountsWhatItCannotUseAndSaysWhy) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,00:00:00.000000,free,0x900,16,0\n"
      "1,00:00:00.000001,allocate,0x100,16,0\n"
      "2,00:00:00.000002,allocate,0x100,32,0\n"
      "1,00:00:00.000003,allocate,(nil),0,0\n"
      "1,00:00:00.000004,free,(nil),0,0\n"
      "1,00:00:00.000005,free,0x100,17,0\n"
      "1,00:00:00.000006,free,0x100,16,0\n");

  EXPECT_EQ(summary(log.counts), "rows 7: used 2, unmatched 2, duplicate 1, other 2");
  EXPECT_EQ(text::join(log.counts.notes, "\n"),
            "2 rows allocate or free nothing, at a null pointer\n"
            "1 rows allocate at an address that is live\n"
            "1 rows free another size than was allocated");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=1000 @3\n"
            "free id=1 thread=1 time_ns=5000 @7\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(RmmCsv, ReadsOnWhereOneLogWasAppendedToAnother) {
  const auto log = read_log(
      "Time,Action,Pointer,Size,Stream\n"
      "10:00:00:000000,allocate,0x100,256,0\n"
      "Thread,Time,Action,Pointer,Size,Stream\r\n"
      "\r\n"
      "5,10:00:00.000001,free,0x100,256,0\r\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=256 addr=0x100 time_ns=0 @2\n"
            "free id=1 thread=5 time_ns=1000 @5\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(RmmCsv, FindsItsColumnsInAnyOrderAmongOthersInQuotesOrNot) {
  const auto log = read_log(
      "\"\",Time,Action,Pointer,Size,host,Thread\n"
      "0,01:54:00.576568,\"allocate\",0x700000000000,\"10302908\",\"a, b\",23150\n"
      "1,01:54:00.576569,allocate failure,(nil),5,c,23150\n"
      "Thread,Time,Action,Pointer,Size,Stream,gpu\n"
      "23150,01:54:00.576607,free,0x700000000000,10302908,0x10,A\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10302908 addr=0x700000000000 thread=23150 time_ns=0 @2\n"
            "memalloc id=2 size=5 thread=23150 time_ns=1000 oom @3\n"
            "free id=1 stream=0x10 thread=23150 time_ns=39000 @5\n"
            "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 3: used 3");
  EXPECT_EQ(text::join(log.counts.notes), "2 columns are not read: gpu, host");
  EXPECT_EQ(read_log("size,time,action,pointer\n\"8\",00:00:00.000000,free,\"7f\"\n").error,
            R"(run.log:2:27: Pointer is "7f": expected 0x and hex digits, (nil) or 0)");
  EXPECT_EQ(read_log("size,time,action,pointer\n8,00:00:00.000000,free,0x7f,9\n").error,
            R"(run.log:2:29: the rest is "9": expected the end of the line)");
}

TEST(RmmCsv, TakesFractionsOfASecondWithNoneToNineDigits) {
  const auto log = read_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "7,23:59:59,allocate,0x100,16,0\n"
      "7,23:59:59.5,allocate,0x200,16,0\n"
      "7,23:59:59.50025,allocate,0x300,16,0\n"
      "7,23:59:59.500250001,allocate,0x400,16,0\n"
      "7,00:00:00,free,0x100,16,0\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=16 addr=0x100 thread=7 time_ns=0 @2\n"
            "memalloc id=2 size=16 addr=0x200 thread=7 time_ns=500000000 @3\n"
            "memalloc id=3 size=16 addr=0x300 thread=7 time_ns=500250000 @4\n"
            "memalloc id=4 size=16 addr=0x400 thread=7 time_ns=500250001 @5\n"
            "free id=1 thread=7 time_ns=1000000000 @6\n"
            "end events=5 live=3 live_bytes=48");
}

TEST(RmmCsv, TakesBlanksAroundItsFieldsAndBlankLinesBeforeItsHeader) {
  constexpr std::string_view kFile =
      "\n\nThread,Time,Action,Pointer,Size,Stream\n"
      "  7, 00:00:00.000001, allocate, 0x100, 16, 0\n";
  const auto log = read_log(kFile);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(
      log.text(),
      "memalloc id=1 size=16 addr=0x100 thread=7 time_ns=0 @4\nend events=1 live=1 live_bytes=16");
  EXPECT_EQ((*find_importer("rmm-csv"))->sniff(kFile), 100);
}

TEST(RmmCsv, SaysWhereARowIsDamagedAndWhatItExpected) {
  const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"x,00:00:00.000000,free,0x1,1,0\n",
       R"(run.log:2:1: Thread is "x": expected a thread's number)"},
      {"1,00:00,free,0x1,1,0\n",
       R"(run.log:2:3: Time is "00:00": expected a time of day as 01:54:00.576568)"},
      {"1,00:00:00.,free,0x1,1,0\n",
       R"(run.log:2:3: Time is "00:00:00.": expected a time of day as 01:54:00.576568)"},
      {"1,00:00:00.0000000001,free,0x1,1,0\n",
       R"(run.log:2:3: Time is "00:00:00.0000000001": expected a time of day as 01:54:00.576568)"},
      {"1,00:00:00 5,free,0x1,1,0\n",
       R"(run.log:2:3: Time is "00:00:00 5": expected a time of day as 01:54:00.576568)"},
      {"1,24:00:00.000000,free,0x1,1,0\n",
       R"(run.log:2:3: Time is "24:00:00.000000": expected a time of day as 01:54:00.576568)"},
      {"1,00:00:00.000000,resize,0x1,1,0\n",
       R"(run.log:2:19: Action is "resize": expected allocate, allocate failure or free)"},
      {"1,00:00:00.000000,free,7f00,1,0\n",
       R"(run.log:2:24: Pointer is "7f00": expected 0x and hex digits, (nil) or 0)"},
      {"1,00:00:00.000000,free,0x1,-1,0\n",
       R"(run.log:2:28: Size is "-1": expected a count of bytes)"},
      {"1,00:00:00.000000,free,0x1,18446744073709551616,0\n",
       R"(run.log:2:28: Size is "18446744073709551616": expected a count of bytes)"},
      {"1,00:00:00.000000,free,0x1,1\n",
       R"(run.log:2:29: Stream is "": expected 0x and hex digits, (nil) or 0)"},
      {"1,00:00:00.000000,free,0x1,1,0,9\n",
       R"(run.log:2:30: Stream is "0,9": expected 0x and hex digits, (nil) or 0)"},
  };

  for (const auto& [row, words] : rows) {
    const auto log = read_log(header + std::string(row), true);
    EXPECT_EQ(log.error, words) << row;
    EXPECT_FALSE(log.finished);
  }
}

TEST(RmmCsv, TakesALogThatWasCutUpToItsLastWholeRowIfAsked) {
  constexpr std::string_view kCut =
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,00:00:00.000000,allocate,0x100,16,0\n"
      "1,00:00:00.000001,fre";

  EXPECT_EQ(read_log(kCut).error, "run.log:3: the file ends inside a line: expected a whole row");

  const auto log = read_log(kCut, true);
  EXPECT_EQ(summary(log.counts), "rows 2: used 1, truncated 1");
  EXPECT_EQ(text::join(log.counts.notes), "the file ends inside line 3");
  EXPECT_EQ(log.text(), "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=0 @2")
      << "no `end`: it is not whole";
  EXPECT_TRUE(log.finished);
}

}  // namespace
}  // namespace emm::trace
