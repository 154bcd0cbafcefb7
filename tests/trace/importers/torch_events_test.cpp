#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kHeader =
    R"({"name": "mlp", "torch": "2.11.0", "device": "NVIDIA H200", "stats": {"requested_bytes.all.peak": 300}})"
    "\n";

Imported read_events(std::string_view rows, bool partial = false) {
  return import_text("torch-events", std::string(kHeader) + std::string(rows), partial);
}

TEST(TorchEvents, MakesOperationsOfWhatTheCallerAndTheAllocatorDid) {
  const auto log = read_events(
      "[\"segment_alloc\",4096,2097152,0,1000]\n"
      "[\"alloc\",4096,100,0,1002]\n"
      "[\"alloc\",4608,200,1330501632,1003]\n"
      "[\"free_requested\",4096,100,0,1004]\n"
      "[\"free_completed\",4096,100,0,1004]\n"
      "[\"free_requested\",4608,200,1330501632,1005]\n"
      "[\"alloc\",4096,50,0,1006]\n"
      "[\"free_completed\",4608,200,1330501632,1007]\n"
      "[\"snapshot\",0,50,0,1008]\n"
      "[\"segment_free\",4096,2097152,0,1009]\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=2097152 addr=0x1000 time_ns=0 @2\n"
            "memalloc id=1 size=100 addr=0x1000 time_ns=2000 @3\n"
            "memalloc id=2 size=200 addr=0x1200 stream=0x4f4dd800 time_ns=3000 @4\n"
            "free id=1 time_ns=4000 @5\n"
            "free id=2 stream=0x4f4dd800 time_ns=5000 @7\n"
            "memalloc id=3 size=50 addr=0x1000 time_ns=6000 @8\n"
            "free backing id=2 stream=0x4f4dd800 time_ns=7000 @9\n"
            "mark time_ns=8000 snapshot \"x-action\":\"snapshot\",\"x-size\":50 @10\n"
            "free backing id=s1 time_ns=9000 @11\n"
            "end events=9 live=1 live_bytes=50");
  EXPECT_EQ(summary(log.counts), "rows 10: used 10");
  EXPECT_EQ(log.header.source_options, text::trim(kHeader));
  EXPECT_EQ(log.header.name, "mlp");
  EXPECT_EQ(log.header.framework, "torch 2.11.0");
}

TEST(TorchEvents, MakesAnOutOfMemoryRowARefusedMemalloc) {
  const auto log = read_events(
      "[\"oom\",146569035776,164106752,0,1000]\n"
      "[\"oom\",null,5,0,1001]\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=164106752 time_ns=0 oom \"x-device_free\":146569035776 @2\n"
            "memalloc id=2 size=5 time_ns=1000 oom @3\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(TorchEvents, SplitsMappedRangesThatAreUnmappedInPart) {
  const auto log = read_events(
      "[\"segment_map\",1000,100,0,1]\n"
      "[\"segment_map\",1100,100,0,2]\n"
      "[\"segment_unmap\",1050,100,0,3]\n"
      "[\"segment_unmap\",5000,100,0,4]\n");

  EXPECT_EQ(log.text(),
            "memalloc backing physical id=s1 size=100 addr=0x3e8 time_ns=0 @2\n"
            "memalloc backing physical id=s2 size=100 addr=0x44c time_ns=1000 @3\n"
            "free backing id=s1 time_ns=2000 @4\n"
            "memalloc backing physical id=s3 size=50 addr=0x3e8 time_ns=2000 \"x-no_row\":true @4\n"
            "free backing id=s2 time_ns=2000 \"x-no_row\":true @4\n"
            "memalloc backing physical id=s4 size=50 addr=0x47e time_ns=2000 \"x-no_row\":true @4\n"
            "end events=6 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 4: used 3, unmatched 1");
}

TEST(TorchEvents, CountsWhatBeganBeforeOrWasLost) {
  const auto log = read_events(
      "[\"free_requested\",4096,100,0,1]\n"
      "[\"free_completed\",4096,100,0,1]\n"
      "[\"alloc\",4096,100,0,2]\n"
      "[\"alloc\",4096,100,0,3]\n"
      "[\"segment_free\",4096,100,0,4]\n"
      "[\"free_requested\",4096,99,0,5]\n");

  EXPECT_EQ(summary(log.counts), "rows 6: used 2, unmatched 3, duplicate 1");
  EXPECT_EQ(text::join(log.counts.notes, "\n"),
            "1 frees had not completed at the end: their memory was not free yet\n"
            "1 rows allocate at an address that is live\n"
            "1 rows free another size than was allocated");
}

TEST(TorchEvents, ReadsRowsWithoutAHeader) {
  const auto log = import_text("torch-events", "[\"alloc\",4096,100,0,7]\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=100 addr=0x1000 time_ns=0 @1\nend events=1 live=1 live_bytes=100");
  EXPECT_EQ(log.header.source_options, "");
}

TEST(TorchEvents, TakesRowsWithoutTimesHexAddressesAndCommasBetweenRows) {
  constexpr std::string_view kFile =
      "\xef\xbb\xbf\r\n[\"alloc\",\"0x1000\",100,0],\r\n[\"free_requested\",4096,100,0],\r\n";
  const auto log = import_text("torch-events", kFile);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(
      log.text(),
      "memalloc id=1 size=100 addr=0x1000 @2\nfree id=1 @3\nend events=2 live=0 live_bytes=0");
  const auto source = format::ByteSource::memory(kFile);
  const auto found = detect(*source);
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)->name, "torch-events");
}

TEST(TorchEvents, SaysWhereARowIsDamaged) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {R"(["resize",1,2,3,4])",
       R"(run.log:2:2: action is "resize": expected alloc, free_requested, free_completed, )"
       "segment_alloc, segment_free, segment_map, segment_unmap, oom or snapshot"},
      {R"(["alloc",null,2,3,4])", R"(run.log:2:10: address is "null": expected an address)"},
      {R"(["alloc",1,2.5,3,4])", R"(run.log:2:12: size is "2.5": expected a count of bytes)"},
      {R"(["alloc",1,2,"s",4])", R"(run.log:2:14: stream is "s": expected a stream's handle)"},
      {R"(["alloc",1,2,3,-4])", R"(run.log:2:16: time is "-4": expected microseconds)"},
  };

  for (const auto& [row, words] : rows)
    EXPECT_EQ(read_events(std::string(row) + "\n").error, words) << row;
  EXPECT_EQ(read_events("[\"alloc\",1,2,").error,
            "run.log:2: the file ends inside a line: expected a whole row");
  EXPECT_EQ(summary(read_events("[\"alloc\",1,2,", true).counts), "rows 1: truncated 1");
}

}  // namespace
}  // namespace emm::trace
