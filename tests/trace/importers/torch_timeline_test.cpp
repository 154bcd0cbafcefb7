#include <gtest/gtest.h>

#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

TEST(TorchTimeline, KeepsCategoriesAndMovesAcrossThem) {
  const auto trace = import_text("torch-timeline",
                                 "[[-1, 1, 400, 0],\n [1000, 2, 20, 3],\n [1200, 3, -20, 3],\n"
                                 " [1200, 3, 20, 4],\n [1300, 3, -400, 0], [1300, 3, 400, 0],\n"
                                 " [1500, 4, -20, 4]]");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.extensions, "\"x-curve\":\"blocks\"");
  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=400 preexisting time_ns=0 \"x-category\":\"parameter\" @1\n"
            "memalloc id=2 size=20 time_ns=0 \"x-category\":\"temporary\" @2\n"
            "x- @4\n"
            "free id=2 time_ns=500 \"x-category\":\"activation\" @6\n"
            "end events=4 live=1 live_bytes=400");
  EXPECT_EQ(summary(trace.counts), "rows 7: used 7");
}

TEST(TorchTimeline, TakesTotalsAsStepsOfEachCategory) {
  const auto trace = import_text("torch-timeline",
                                 "[[5, 5, 7, 9],\n [[0, 100, 0, 0, 0, 0, 0, 0, 0],\n"
                                 "  [0, 100, 0, 0, 0, 0, 50, 0, 0],\n"
                                 "  [0, 100, 0, 0, 0, 0, 80, 0, 0],\n"
                                 "  [0, 100, 0, 0, 0, 0, 60, 0, 0]]]");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.extensions, "\"x-curve\":\"totals\"");
  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=100 preexisting time_ns=0 \"x-category\":\"parameter\" @2\n"
            "memalloc id=2 size=50 time_ns=0 \"x-category\":\"gradient\" @3\n"
            "memalloc id=3 size=30 time_ns=2000 \"x-category\":\"gradient\" @4\n"
            "free id=3 time_ns=4000 \"x-category\":\"gradient\" @5\n"
            "memalloc id=4 size=10 time_ns=4000 \"x-category\":\"gradient\",\"x-no_row\":true @5\n"
            "end events=5 live=3 live_bytes=160");
}

TEST(TorchTimeline, SortsRowsByTimeAndPutsWhatWasThereFirst) {
  const auto trace = import_text(
      "torch-timeline", "[[20, 4, -8, 7], [10, 2, 8, 7], [15, 0, 16, 1], [30, 4, -99, 2]]");

  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=16 preexisting time_ns=0 \"x-category\":\"optimizer_state\" @1\n"
            "memalloc id=2 size=8 time_ns=0 \"x-category\":\"unknown\" @1\n"
            "free id=2 time_ns=10 \"x-category\":\"unknown\" @1\n"
            "end events=3 live=1 live_bytes=16");
  EXPECT_EQ(summary(trace.counts), "rows 4: used 3, unmatched 1");
}

TEST(TorchTimeline, RefusesWhatIsNoRow) {
  constexpr std::string_view kExpected =
      "expected [time, action, bytes, category], or times and the bytes of each category";
  EXPECT_EQ(import_text("torch-timeline", "[[1, 2, 3, 4],\n [1, 9, 3, 4]]").error,
            text::format("run.log:2:2: a row is \"1, 9, 3, 4\": {}", kExpected));
  EXPECT_EQ(
      import_text("torch-timeline", "[[1, 2, 3, 4], [1, 2").error,
      "run.log:1: the file ends inside the timeline: expected a whole timeline, or --partial");
  EXPECT_EQ(import_text("torch-timeline",
                        "<html><head><title>GPU Memory Timeline HTML</title></head></html>")
                .error,
            "run.log: the file is a picture of a timeline and holds no number: expected what "
            "export_memory_timeline(\"timeline.raw.json.gz\") writes");
}

}  // namespace
}  // namespace emm::trace
