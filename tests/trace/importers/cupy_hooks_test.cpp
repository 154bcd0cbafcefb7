#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

TEST(CupyHooks, TellWhatTheProgramAskedForFromWhatThePoolAskedFor) {
  const auto trace = import_text("cupy-hooks",
                                 "[\"dev_alloc\", 4096, 512, 0, 1000]\n"
                                 "[\"alloc\", 4096, 24, 0, 1010, 512]\n"
                                 "[\"free\", 4096, 512, 0, 1050]\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=512 addr=0x1000 time_ns=0 @1\n"
            "memalloc id=1 size=24 addr=0x1000 granted=512 time_ns=10 @2\n"
            "free id=1 time_ns=50 @3\n"
            "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(summary(trace.counts), "rows 3: used 3");
  EXPECT_EQ(trace.header.framework, "CuPy");
}

TEST(CupyHooks, OfDebugPrintHookAreTheSameRequests) {
  const auto trace = import_text(
      "cupy-hooks",
      R"({"hook":"alloc","device_id":1,"mem_size":512,"mem_ptr":150496608256})"
      "\n"
      R"({"hook":"malloc","device_id":1,"size":24,"mem_size":512,"mem_ptr":150496608256,"pmem_id":"0x7f39200c5278"})"
      "\n"
      R"({"hook":"free","device_id":1,"mem_size":512,"mem_ptr":150496608256,"pmem_id":"0x7f39200c5278"})"
      "\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=512 addr=0x230a4c0000 device=1 @1\n"
            "memalloc id=1 size=24 addr=0x230a4c0000 granted=512 device=1 @2\n"
            "free id=1 device=1 @3\n"
            "end events=3 live=0 live_bytes=0");
}

TEST(CupyHooks, OfNoBytesAreNoRequests) {
  const auto trace =
      import_text("cupy-hooks", "[\"alloc\", 0, 0, 0, 1, 0]\n[\"free\", 0, 0, 0, 2]\n");

  EXPECT_EQ(trace.text(), "end events=0 live=0 live_bytes=0");
  EXPECT_EQ(summary(trace.counts), "rows 2: other 2");
  EXPECT_EQ(text::join(trace.counts.notes), "2 rows allocate or free nothing, at a null pointer");
}

TEST(CupyHooks, SeeThatThePoolGaveBackWhatTheDeviceHandsOutAgain) {
  const auto trace = import_text("cupy-hooks",
                                 "[\"dev_alloc\", 4096, 512, 0, 1]\n"
                                 "[\"dev_alloc\", 4608, 512, 0, 2]\n"
                                 "[\"dev_alloc\", 4352, 512, 0, 3]\n");

  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=512 addr=0x1000 time_ns=0 @1\n"
            "memalloc backing id=s2 size=512 addr=0x1200 time_ns=1 @2\n"
            "free backing id=s1 time_ns=2 @3\n"
            "free backing id=s2 time_ns=2 @3\n"
            "memalloc backing id=s3 size=512 addr=0x1100 time_ns=2 @3\n"
            "end events=5 live=0 live_bytes=0");
  EXPECT_EQ(summary(trace.counts), "rows 3: used 3");
}

TEST(CupyHooks, FreeOfWhatWasNeverAllocatedIsUnmatched) {
  const auto trace = import_text("cupy-hooks", "[\"free\", 4096, 512, 0, 1]\n");

  EXPECT_EQ(summary(trace.counts), "rows 1: unmatched 1");
}

TEST(CupyHooks, TakeHexAddressesTimesOfPartsAndCommasBetweenRows) {
  const auto hooks = import_text("cupy-hooks",
                                 "\xef\xbb\xbf\n"
                                 "[\"alloc\", \"0x1000\", 24, 0, 100.75, 512],\r\n"
                                 "[\"free\", 4096, 512, 0, 101],\r\n");

  EXPECT_EQ(hooks.error, "");
  EXPECT_EQ(hooks.text(),
            "memalloc id=1 size=24 addr=0x1000 granted=512 time_ns=0 @2\n"
            "free id=1 time_ns=1 @3\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(CupyHooks, AfterALineOnTheRunHaveStreamsRefusedRequestsAndCallsOfFreeAllBlocks) {
  const auto trace =
      import_text("cupy-hooks",
                  R"({"name": "run", "cupy": "14.2.0", "limit": 1048576, "end": {"used_bytes": 0}})"
                  "\n"
                  "[\"dev_alloc\", 4096, 1024, 0, 10, 48]\n"
                  "[\"alloc\", 4096, 600, 0, 11, 1024, 48]\n"
                  "[\"alloc\", 0, 2000000, 0, 12, 2000384, 48]\n"
                  "[\"oom\", 13, 48]\n"
                  "[\"free\", 4096, 1024, 0, 14, 0]\n"
                  "[\"free_all_blocks\", 15, 0]\n");

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.name, "run");
  EXPECT_EQ(trace.header.framework, "CuPy 14.2.0");
  EXPECT_EQ(trace.text(),
            "memalloc backing id=s1 size=1024 addr=0x1000 time_ns=0 @2\n"
            "memalloc id=1 size=600 addr=0x1000 granted=1024 stream=0x30 time_ns=1 @3\n"
            "memalloc id=2 size=2000000 stream=0x30 time_ns=2 oom @4\n"
            "free id=1 time_ns=4 @6\n"
            "mark time_ns=5 free_all_blocks @7\n"
            "end events=5 live=0 live_bytes=0");
  EXPECT_EQ(summary(trace.counts), "rows 6: used 6");
  EXPECT_EQ(text::join(trace.counts.notes),
            "the pool was limited to 1.00 MiB, "
            "1 calls of free_all_blocks: what the pool released then is not in the recording");
}

TEST(CupyHooks, NameWhatIsWrongAndWhere) {
  constexpr std::string_view kFiles[][2] = {
      {R"(["grow", 4096, 512, 0, 1])",
       "run.log:1:2: action is \"grow\": expected dev_alloc, alloc, free, free_all_blocks or oom"},
      {R"(["free", "x", 512, 0, 1])", "run.log:1:10: pointer is \"x\": expected an address"},
      {R"(["free", 4096, -1, 0, 1])", "run.log:1:16: size is \"-1\": expected a count of bytes"},
      {R"(["free", 4096, 1, 256, 1])",
       "run.log:1:19: device is \"256\": expected a device's number"},
      {R"(["alloc", 4096, 1, 0, 1])",
       "run.log:1:25: rounded size is \"\": expected a count of bytes"},
      {R"({"hook":"grow"})", "run.log:1:9: hook is \"grow\": expected alloc, malloc or free"},
      {R"({"hook":"free","device_id":0})",
       "run.log:1:1: mem_size is \"\": expected a count of bytes"},
  };
  for (const auto& [line, error] : kFiles) {
    EXPECT_EQ(import_text("cupy-hooks", std::string(line) + "\n").error, error);
  }
}

}  // namespace
}  // namespace emm::trace
