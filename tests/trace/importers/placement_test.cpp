// Buffers with lifetimes: dsa-csv and allocator-sim.
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

TEST(DsaCsv, FreesBeforeItAllocatesAtTheSameTime) {
  const auto trace = import_text("dsa-csv",
                                 "id,lower,upper,size\n"
                                 "7,5,9,100\n"
                                 "x,0,5,200\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc id=x size=200 @3\n"
            "free id=x @3\n"
            "memalloc id=7 size=100 @2\n"
            "free id=7 @2\n"
            "end events=4 live=0 live_bytes=0");
  EXPECT_EQ(summary(trace.counts), "rows 2: used 2");
}

TEST(DsaCsv, TakesAnEndAsInclusiveAndAnUpperAsExclusive) {
  constexpr std::string_view kRows = "1,0,4,10\n2,4,5,10\n";
  const auto order = [&](std::string_view header) {
    const auto trace = import_text("dsa-csv", text::format("{}\n{}", header, kRows));
    return text::join(
        std::vector<std::string>(trace.operations.begin(), trace.operations.begin() + 2), "; ");
  };

  EXPECT_EQ(order("id,lower,upper,size"), "memalloc id=1 size=10 @2; free id=1 @2");
  EXPECT_EQ(order("id,start,end,size"), "memalloc id=1 size=10 @2; memalloc id=2 size=10 @3");
}

TEST(DsaCsv, MayHaveSemicolonsOrTabsForCommas) {
  for (const std::string_view separator : {";", "\t"}) {
    std::string file;
    for (const char c : std::string_view("id,lower,upper,size\n7,5,9,100\n\"x\",0,5,200\n")) {
      file += c == ',' ? separator : std::string_view(&c, 1);
    }
    const auto trace = import_text("dsa-csv", file);

    EXPECT_EQ(trace.error, "") << file;
    EXPECT_EQ(trace.text(),
              "memalloc id=x size=200 @3\n"
              "free id=x @3\n"
              "memalloc id=7 size=100 @2\n"
              "free id=7 @2\n"
              "end events=4 live=0 live_bytes=0");
    EXPECT_EQ((*find_importer("dsa-csv"))->sniff(file), 95) << file;
  }
  EXPECT_EQ(import_text("dsa-csv", "id;lower;upper;size\n1;4;3;2\n").error,
            "run.log:2:5: upper is \"3\": expected a time after the buffer's first");
  EXPECT_EQ(
      import_text("dsa-csv", "id;lower;size\n").error,
      "run.log:1:1: the header is \"id;lower;size\": expected id,lower,upper,size, and any of "
      "alignment,hint,gaps,offset");
}

TEST(DsaCsv, KeepsAlignmentsAndSaysWhatItDoesNotKeep) {
  const auto trace = import_text("dsa-csv",
                                 "id,lower,upper,size,alignment,hint,gaps,offset\n"
                                 "1,0,4,10,256,3,1-2,512\n"
                                 "2,0,4,10,1,-1,,\n"
                                 "3,0,4,0,,,,\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(summary(trace.counts), "rows 3: used 2, other 1");
  EXPECT_EQ(text::join(trace.counts.notes, "\n"),
            "1 buffers have gaps, in which their memory is not needed: taken as needed\n"
            "1 buffers have a hint, which a trace does not keep\n"
            "1 buffers have been placed, which a trace does not keep\n"
            "1 rows are of 0 bytes");
}

TEST(DsaCsv, NamesWhatIsWrongAndWhere) {
  constexpr std::string_view kRows[][2] = {
      {"1,0,4", "run.log:3:6: size is \"\": expected a count of bytes"},
      {"1,x,4,10", "run.log:3:3: lower is \"x\": expected a time"},
      {"1,4,4,10", "run.log:3:5: upper is \"4\": expected a time after the buffer's first"},
      {"0,4,5,10", "run.log:3:1: id is \"0\": expected one that no row before it has"},
      {",4,5,10",
       "run.log:3:1: id is \"\": expected an id: a count, or 1 to 64 letters, digits and _.:/-"},
      {"a b,4,5,10",
       "run.log:3:1: id is \"a b\": expected an id: a count, or 1 to 64 letters, digits and _.:/-"},
  };
  for (const auto& [row, error] : kRows) {
    EXPECT_EQ(import_text("dsa-csv", text::format("id,lower,upper,size\n0,0,1,1\n{}\n", row)).error,
              error);
  }
  EXPECT_EQ(import_text("dsa-csv", "id,lower,upper,size,alignment\n0,0,1,1,3\n").error,
            "run.log:2:9: alignment is \"3\": expected a power of two");
  EXPECT_EQ(import_text("dsa-csv", "id,lower,upper,size\n1,0,4,10,7\n").error,
            "run.log:2:10: the rest is \"7\": expected the end of the line");
  EXPECT_EQ(import_text("dsa-csv", "id,lower,upper,size\n1,0,4,\"10\n").error,
            "run.log:2:7: size is \"\"10\": expected a count of bytes");
  EXPECT_EQ(
      import_text("dsa-csv", "id,lower,size\n").error,
      "run.log:1:1: the header is \"id,lower,size\": expected id,lower,upper,size, and any of "
      "alignment,hint,gaps,offset");
}

TEST(DsaCsv, FindsItsColumnsInAnyOrderAmongOthersInQuotesOrNot) {
  const auto trace = import_text("dsa-csv",
                                 "Size,\"name\",UPPER, lower ,id,color\r\n"
                                 "100,\"a, b\",9,5,007,red\r\n"
                                 "\r\n"
                                 "200,\"c \"\"d\"\"\",\"5\",0,7,,\r\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc id=7 size=200 @4\n"
            "free id=7 @4\n"
            "memalloc id=007 size=100 @2\n"
            "free id=007 @2\n"
            "end events=4 live=0 live_bytes=0");
  EXPECT_EQ(text::join(trace.counts.notes, "\n"), "2 columns are not read: name, color");
}

TEST(DsaCsv, TakesAFileWithoutAHeaderAndSaysSo) {
  const auto trace = import_text("dsa-csv", "7,0,5,100\n8,5,9,200\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(summary(trace.counts), "rows 2: used 2");
  EXPECT_EQ(text::join(trace.counts.notes),
            "the file has no header: its columns are taken as id,lower,upper,size");
}

TEST(DsaCsv, ReadsNumbersOfAnyLength) {
  std::string file = "id,lower,upper,size\n", expected;
  std::uint64_t value = 0;
  for (int digits = 1; digits <= 19; ++digits) {
    value = value * 10 + static_cast<std::uint64_t>(digits % 10 == 0 ? 1 : digits % 10);
    file += text::format("{},{},{},{}\n", digits, value - 1, value, value);
    expected += text::format("memalloc id={} size={} @{}\nfree id={} @{}\n", digits, value,
                             digits + 1, digits, digits + 1);
  }

  const auto trace = import_text("dsa-csv", file);

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(), expected + "end events=38 live=0 live_bytes=0");

  // All sizes of a trace together stay below 2^64, so twenty digits stand alone.
  const auto largest =
      import_text("dsa-csv",
                  "id,lower,upper,size\n1,18446744073709551614,18446744073709551615,"
                  "18446744073709551615\n");

  EXPECT_EQ(largest.error, "");
  EXPECT_EQ(largest.text(),
            "memalloc id=1 size=18446744073709551615 @2\nfree id=1 @2\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(DsaCsv, SortsTimesBeyondThirtyTwoBitsAsOthers) {
  for (const std::uint64_t far : {std::uint64_t{100}, std::uint64_t{1} << 33}) {
    const auto trace = import_text(
        "dsa-csv",
        text::format("id,lower,upper,size\n1,{},{},8\n2,50,60,8\n3,50,{},8\n", far, far + 1, far));

    EXPECT_EQ(trace.text(),
              "memalloc id=2 size=8 @3\n"
              "memalloc id=3 size=8 @4\n"
              "free id=2 @3\n"
              "free id=3 @4\n"
              "memalloc id=1 size=8 @2\n"
              "free id=1 @2\n"
              "end events=6 live=0 live_bytes=0");
  }
}

TEST(AllocatorSim, IsAPlacementProblemWithoutIds) {
  const auto trace = import_text("allocator-sim", "0 3 512\n1\t2 1024\n");

  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=512 @1\n"
            "memalloc id=2 size=1024 @2\n"
            "free id=2 @2\n"
            "free id=1 @1\n"
            "end events=4 live=0 live_bytes=0");
  EXPECT_EQ(import_text("allocator-sim", "3 3 512\n").error,
            "run.log:1:3: end_op is \"3\": expected a time after start_op");
  EXPECT_EQ(import_text("allocator-sim", "3 4 512 7\n").error,
            "run.log:1:9: the rest is \"7\": expected the end of the line");
}

}  // namespace
}  // namespace emm::trace
