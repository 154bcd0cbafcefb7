// Formats of words with spaces between: stalloc and ops-list.
#include <gtest/gtest.h>

#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

TEST(Stalloc, PairsAddressesAndMarksPhases) {
  const auto trace = import_text("stalloc",
                                 "Iteration Index : 0\n"
                                 "micro-batch : F\n"
                                 "1 0x7f00 512 0\n"
                                 "1 32000 64 94862938\n"
                                 "0 0x7f00 512 0\n"
                                 "0 7 64 0\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "mark Iteration Index : 0 @1\n"
            "mark micro-batch : F @2\n"
            "memalloc id=1 size=512 addr=0x7f00 @3\n"
            "memalloc id=2 size=64 addr=0x7d00 stream=0x5a77e5a @4\n"
            "free id=1 @5\n"
            "end events=5 live=1 live_bytes=64");
  EXPECT_EQ(summary(trace.counts), "rows 6: used 5, unmatched 1");
}

TEST(Stalloc, NamesWhatIsWrongAndWhere) {
  EXPECT_EQ(import_text("stalloc", "2 0x7f00 512 0\n").error,
            "run.log:1:1: the first word is \"2\": expected 1, 0, Iteration Index or micro-batch");
  EXPECT_EQ(import_text("stalloc", "1 0x7f00 512\n").error,
            "run.log:1:13: stream is \"\": expected a stream's handle");
}

TEST(OpsList, PairsIdsWhichMayBeGivenAgain) {
  const auto trace = import_text("ops-list",
                                 "# a comment\n"
                                 "a x 512\n"
                                 "a x 513\n"
                                 "f x\n"
                                 "a x 64\n"
                                 "f y\n"
                                 "a z 0\n"
                                 "f z\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=512 @2\n"
            "free id=1 @4\n"
            "memalloc id=2 size=64 @5\n"
            "end events=3 live=1 live_bytes=64");
  EXPECT_EQ(summary(trace.counts), "rows 8: used 3, unmatched 1, duplicate 1, other 3");
}

TEST(OpsList, NamesWhatIsWrongAndWhere) {
  EXPECT_EQ(import_text("ops-list", "b x 1\n").error,
            "run.log:1:1: the operation is \"b\": expected a or f");
  EXPECT_EQ(import_text("ops-list", "a x\n").error,
            "run.log:1:4: size is \"\": expected a count of bytes");
  EXPECT_EQ(import_text("ops-list", "f\n").error, "run.log:1:2: the id is \"\": expected a name");
  EXPECT_EQ(import_text("ops-list", "f x y\n").error,
            "run.log:1:5: the rest is \"y\": expected the end of the line");
}

}  // namespace
}  // namespace emm::trace
