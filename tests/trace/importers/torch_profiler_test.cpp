#include <gtest/gtest.h>

#include <string>

#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

/// One "[memory]" event. `more` has further arguments, each with a comma before it.
std::string memory(std::string_view ts, std::string_view bytes, std::string_view more, int type = 1,
                   int device = 0) {
  return text::format(
      R"({"ph":"i","name":"[memory]","ts":{},"args":{"Bytes":{},"Device Type":{},"Device Id":{}{}}})",
      ts, bytes, type, device, more);
}

std::string profile(std::string_view events) {
  return text::format(
      "{\"schemaVersion\":1,\"deviceProperties\":[{\"id\":0,\"name\":\"GPU\",\"totalGlobalMem\":"
      "1000}],\n\"traceEvents\":[\n{}\n],\"traceName\":\"x\"}\n",
      events);
}

TEST(TorchProfiler, ReplaysWhatHasAddresses) {
  const auto trace = import_text(
      "torch-profiler",
      profile(
          R"({"ph":"X","name":"[memory]x","ts":1,"args":{"Bytes":7}},)" +
          memory("10.5", "100", R"(,"Addr":4096,"Total Allocated":100,"Total Reserved":200)") +
          ",\n" + memory("11", "50", R"(,"Addr":8192,"Total Allocated":150,"Total Reserved":300)") +
          ",\n" +
          memory("12.25", "-100", R"(,"Addr":4096,"Total Allocated":50,"Total Reserved":250)")));

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=200 preexisting\n"
            "memalloc id=1 size=100 addr=0x1000 time_ns=0 @3\n"
            "memalloc backing id=s2 size=100 time_ns=500 @4\n"
            "memalloc id=2 size=50 addr=0x2000 time_ns=500 @4\n"
            "free id=1 time_ns=1750 @5\n"
            "free backing id=s2 time_ns=1750 @5\n"
            "memalloc backing id=s3 size=50 time_ns=1750 \"x-no_row\":true @5\n"
            "end events=7 live=1 live_bytes=50");
  EXPECT_EQ(summary(trace.counts), "rows 3: used 3");
}

TEST(TorchProfiler, ReadsTheSameInAnyOrderOfTheEventsAndAsABareArray) {
  const auto first = memory("1700000000000000.125", "64", R"(,"Addr":512)");
  const auto second = memory("1700000000000000.250", "-64", R"(,"Addr":512)");
  const auto ordered = import_text("torch-profiler", "[" + first + "," + second + "]");
  const auto other = import_text("torch-profiler", "[" + second + "," + first + "]");

  EXPECT_EQ(ordered.error, "");
  EXPECT_EQ(ordered.text(),
            "memalloc id=1 size=64 addr=0x200 time_ns=0 @1\n"
            "free id=1 time_ns=125 @1\n"
            "end events=2 live=0 live_bytes=0");
  EXPECT_EQ(other.text(), ordered.text());
}

TEST(TorchProfiler, CountsMemoryOfTheCpuAndOfBrokenEventsAndKeepsDevicesApart) {
  const auto trace = import_text(
      "torch-profiler", profile(memory("1", "9", R"(,"Addr":4096)", 0, -1) + "," +
                                memory("2", "9", R"(,"Addr":4096)", 1, 1) + "," +
                                memory("3", "8", R"(,"Addr":4096)", 1, 0) + "," +
                                memory("4", "\"x\"", "") + "," + memory("5", "0", R"(,"Addr":7)")));

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=9 addr=0x1000 device=1 time_ns=0 @3\n"
            "memalloc id=2 size=8 addr=0x1000 time_ns=1000 @3\n"
            "end events=2 live=2 live_bytes=17");
  EXPECT_EQ(summary(trace.counts), "rows 5: used 2, other 3");
}

TEST(TorchProfiler, TellsWhatWasLiveBeforeIt) {
  const auto trace = import_text(
      "torch-profiler",
      profile(memory("1", "10", R"(,"Addr":4096,"Total Allocated":110,"Total Reserved":500)") +
              "," +
              memory("2", "-30", R"(,"Addr":9000,"Total Allocated":80,"Total Reserved":500)")));

  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=500 preexisting\n"
            "memalloc id=1 size=30 addr=0x2328 preexisting \"x-no_row\":true\n"
            "memalloc id=2 size=70 preexisting \"x-no_row\":true\n"
            "memalloc id=3 size=10 addr=0x1000 time_ns=0 @3\n"
            "free id=1 time_ns=1000 @3\n"
            "end events=5 live=2 live_bytes=80");
}

TEST(TorchProfiler, WithoutAddressesIsACurveAndSaysSo) {
  const auto trace = import_text(
      "torch-profiler",
      profile(memory("1", "10", "") + "," + memory("2", "20", "") + "," + memory("3", "-10", "")));

  EXPECT_EQ(trace.header.extensions, "\"x-curve\":\"blocks\"");
  EXPECT_EQ(trace.text(),
            "memalloc id=1 size=10 time_ns=0 @3\n"
            "memalloc id=2 size=20 time_ns=1000 @3\n"
            "free id=1 time_ns=2000 @3\n"
            "end events=3 live=1 live_bytes=20");
  ASSERT_EQ(trace.counts.notes.size(), 1u);
  EXPECT_EQ(trace.counts.notes[0],
            "3 events have no address: the file tells the curve and the peak of what was live, and "
            "no more");
}

TEST(TorchProfiler, SaysWhatIsMissing) {
  EXPECT_EQ(
      import_text("torch-profiler", "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\"}]}").error,
      "run.log: the Chrome trace has no [memory] events: expected one that "
      "torch.profiler.profile(profile_memory=True) wrote");
  EXPECT_EQ(import_text("torch-profiler", "{\"traceEvents\":[{\"ph\":\"X\",\n\"na").error,
            "run.log:2: the file ends inside the profile: expected a whole Chrome trace, or "
            "--partial");
}

}  // namespace
}  // namespace emm::trace
