#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/trace.hpp"

namespace emm::trace {
namespace {

/// Rows without the members that every row has: those are added, seq counted from 1 and t_ns ten
/// times that.
class Recording {
 public:
  Recording& add(std::string_view members, std::uint64_t thread = 9) {
    ++seq_;
    text_ +=
        text::format("{{},\"seq\":{},\"t_ns\":{},\"tid\":{}}\n", members, seq_, seq_ * 10, thread);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::uint64_t seq_ = 0;
};

Imported read_calls(std::string_view file, bool partial = false) {
  return import_text("numba-calls", file, partial);
}

TEST(NumbaCalls, MakesAnOperationOfEachCall) {
  Recording calls;
  calls.add(R"("op":"initialize")")
      .add(R"("op":"memory_info","free":900,"total":1000)")
      .add(R"("op":"alloc","size":384,"ptr":4096)")
      .add(R"("op":"managed","size":32,"attach_global":false,"ptr":8192)")
      .add(R"("op":"hostalloc","size":64,"mapped":true,"portable":false,"wc":true,"ptr":12288)")
      .add(R"("op":"pin","size":8,"mapped":true,"ptr":20500)")
      .add(R"("op":"ipc_export","ptr":4120,"size":56,"offset":24)")
      .add(R"("op":"unpin","ptr":20500)")
      .add(R"("op":"defer_begin")", 10)
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":4096,"size":384)")
      .add(R"("op":"defer_end")", 10)
      .add(R"("op":"pending_flush","n":1,"bytes":384)");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "initialize seq=1 time_ns=10 @1\n"
            "get_memory_info seq=2 time_ns=20 free=900 total=1000 @2\n"
            "memalloc id=1 size=384 addr=0x1000 seq=3 time_ns=30 @3\n"
            "memallocmanaged id=2 size=32 host addr=0x2000 seq=4 time_ns=40 @4\n"
            "memhostalloc id=3 size=64 mapped wc addr=0x3000 seq=5 time_ns=50 @5\n"
            "mempin id=4 size=8 buffer=b1 page_offset=20 mapped addr=0x5014 seq=6 time_ns=60 @6\n"
            "get_ipc_handle id=1 size=56 offset=24 handle=h1 seq=7 time_ns=70 @7\n"
            "free id=4 finalizer seq=8 time_ns=80 @8\n"
            "defer_cleanup thread=10 seq=9 time_ns=90 @9\n"
            "free id=1 finalizer seq=10 time_ns=100 @10\n"
            "end_defer_cleanup thread=10 seq=11 time_ns=110 @11\n"
            "flush backing seq=12 time_ns=120 count=1 bytes=384 @12\n"
            "end events=12 live=2 live_bytes=96");
  EXPECT_EQ(summary(log.counts), "rows 12: used 12");
  EXPECT_TRUE(log.counts.notes.empty()) << text::join(log.counts.notes);
  EXPECT_EQ(log.header.default_thread, "9");
  ASSERT_EQ(log.header.devices.size(), 1u);
  EXPECT_EQ(log.header.devices[0].capacity, 1000u);
  EXPECT_EQ(log.header.devices[0].free_at_start, 900u);
}

TEST(NumbaCalls, LeavesTheFreesOfAResetToTheReset) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)")
      .add(R"("op":"alloc","size":20,"ptr":200)")
      .add(R"("op":"pin","size":8,"mapped":true,"ptr":300)")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"reset")")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":200,"size":20)")
      .add(R"("op":"unpin","ptr":300)")
      .add(R"("op":"pending_flush","n":2,"bytes":30)")
      .add(R"("op":"initialize")");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x64 seq=1 time_ns=10 @1\n"
            "memalloc id=2 size=20 addr=0xc8 seq=2 time_ns=20 @2\n"
            "mempin id=3 size=8 buffer=b1 page_offset=300 mapped addr=0x12c seq=3 time_ns=30 @3\n"
            "free id=1 finalizer seq=4 time_ns=40 @4\n"
            "reset seq=5 time_ns=50 @5\n"
            "flush backing seq=8 time_ns=80 count=2 bytes=30 @8\n"
            "initialize seq=9 time_ns=90 @9\n"
            "end events=7 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 9: used 9");
  EXPECT_EQ(text::join(log.counts.notes), "2 frees are a reset's own, and part of it");
}

TEST(NumbaCalls, KeepsTheFlushesThatAResetMakesByCount) {
  Recording calls;
  for (int i = 1; i <= 13; ++i)
    calls.add(text::format(R"("op":"alloc","size":1,"ptr":{})", i * 100));
  calls.add(R"("op":"reset")");
  const auto add = [&](int i) {
    calls.add(text::format(R"("op":"pending_add","dtor":"cuMemFree","ptr":{},"size":1)", i * 100));
  };
  for (int i = 1; i <= 11; ++i) add(i);
  calls.add(R"("op":"pending_flush","n":11,"bytes":11)");
  add(12);
  add(13);
  calls.add(R"("op":"pending_flush","n":2,"bytes":2)");

  const auto log = read_calls(calls.text());

  ASSERT_EQ(log.operations.size(), 13u + 4);
  EXPECT_EQ(log.operations[14], "flush backing seq=26 time_ns=260 count=11 bytes=11 @26");
  EXPECT_EQ(log.operations[15], "flush backing seq=29 time_ns=290 count=2 bytes=2 @29");
  EXPECT_EQ(text::join(log.counts.notes), "13 frees are a reset's own, and part of it");
}

TEST(NumbaCalls, FreesLateWhatOutlivedAReset) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)")
      .add(R"("op":"hostalloc","size":64,"mapped":false,"portable":false,"wc":false,"ptr":200)")
      .add(R"("op":"reset")")
      .add(R"("op":"initialize")")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"pending_add","dtor":"cuMemFreeHost","ptr":200,"size":0)");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x64 seq=1 time_ns=10 @1\n"
            "memhostalloc id=2 size=64 addr=0xc8 seq=2 time_ns=20 @2\n"
            "reset seq=3 time_ns=30 @3\n"
            "initialize seq=4 time_ns=40 @4\n"
            "free id=1 finalizer seq=5 time_ns=50 @5\n"
            "free id=2 finalizer seq=6 time_ns=60 @6\n"
            "end events=6 live=0 live_bytes=0");
  EXPECT_EQ(text::join(log.counts.notes),
            "2 allocations outlived a reset; a replay frees them late");
}

TEST(NumbaCalls, TakesTheFreesOfADeferredResetAsItsOwnUpToTheNextCall) {
  Recording calls;
  calls.add(R"("op":"defer_begin")")
      .add(R"("op":"alloc","size":10,"ptr":100)")
      .add(R"("op":"reset")")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"defer_end")")
      .add(R"("op":"alloc","size":5,"ptr":500)")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":500,"size":5)")
      .add(R"("op":"reset")")
      .add(R"("op":"pending_flush","n":2,"bytes":15)");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.text(),
            "defer_cleanup seq=1 time_ns=10 @1\n"
            "memalloc id=1 size=10 addr=0x64 seq=2 time_ns=20 @2\n"
            "reset seq=3 time_ns=30 @3\n"
            "end_defer_cleanup seq=5 time_ns=50 @5\n"
            "memalloc id=2 size=5 addr=0x1f4 seq=6 time_ns=60 @6\n"
            "free id=2 finalizer seq=7 time_ns=70 @7\n"
            "reset seq=8 time_ns=80 @8\n"
            "flush backing seq=9 time_ns=90 count=2 bytes=15 @9\n"
            "end events=8 live=0 live_bytes=0");
  EXPECT_EQ(text::join(log.counts.notes), "1 frees are a reset's own, and part of it");
}

TEST(NumbaCalls, PutsAFlushBehindTheAllocationThatFoundTheDeviceFull) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"initialize")")
      .add(R"("op":"pending_flush","n":1,"bytes":10)")
      .add(R"("op":"initialize")", 10)
      .add(R"("op":"alloc","size":20,"ptr":100)");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x64 seq=1 time_ns=10 @1\n"
            "free id=1 finalizer seq=2 time_ns=20 @2\n"
            "initialize seq=3 time_ns=30 @3\n"
            "initialize thread=10 seq=5 time_ns=50 @5\n"
            "memalloc id=2 size=20 addr=0x64 seq=6 time_ns=60 @6\n"
            "flush backing time_ns=40 count=1 bytes=10 @4\n"
            "end events=6 live=1 live_bytes=20");
}

TEST(NumbaCalls, CountsOnlyTheManagersQueue) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)")
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"pending_add","dtor":"cuEventDestroy","ptr":7,"size":0)")
      .add(R"("op":"pending_flush","n":1,"bytes":0)")
      .add(R"("op":"reset")")
      .add(R"("op":"pending_flush","n":1,"bytes":10)");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(summary(log.counts), "rows 6: used 4, other 2");
  EXPECT_EQ(log.operations[3], "flush backing seq=6 time_ns=60 count=1 bytes=10 @6");
  EXPECT_EQ(text::join(log.counts.notes, "\n"),
            "1 frees are of events, streams or modules\n"
            "1 flushes are of events, streams or modules");
}

TEST(NumbaCalls, CountsWhatItCannotUseAndSaysWhy) {
  Recording calls;
  calls.add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)")
      .add(R"("op":"unpin","ptr":200)")
      .add(R"("op":"alloc","size":10,"ptr":300)")
      .add(R"("op":"alloc","size":10,"ptr":300)")
      .add(R"("op":"ipc_export","ptr":310,"size":1,"offset":0)")
      .add(R"("op":"defer_end")")
      .add(R"("op":"pending_flush","n":3,"bytes":10)")
      .add(R"("op":"stream_create")")
      .add(R"("op":"defer_begin")");

  const auto log = read_calls(calls.text());

  EXPECT_EQ(summary(log.counts), "rows 9: used 3, unmatched 2, duplicate 1, other 3");
  EXPECT_EQ(text::join(log.counts.notes, "\n"),
            "1 guards of defer_cleanup were open at the end, and are closed there\n"
            "1 rows allocate at an address that is live\n"
            "1 exports are of memory that was not allocated here\n"
            "1 rows end a defer_cleanup that did not begin here\n"
            "1 flushes are of another number of frees or bytes than were asked for\n"
            "1 flushes follow from no call that was recorded; a replay will not make them\n"
            "1 rows are of an unknown call, \"stream_create\"");
  EXPECT_EQ(log.operations[3], "end_defer_cleanup seq=10 @9");
}

TEST(NumbaCalls, PutsRowsOfSeveralThreadsInTheOrderOfTheirSeq) {
  const auto log = read_calls(
      R"({"op":"initialize","seq":1,"t_ns":1,"tid":5})"
      "\n"
      R"({"op":"pending_add","dtor":"cuMemFree","ptr":64,"size":10,"seq":3,"t_ns":3,"tid":6})"
      "\n"
      R"({"op":"alloc","size":10,"ptr":64,"seq":2,"t_ns":2,"tid":5})"
      "\n"
      R"({"op":"alloc","size":10,"ptr":64,"seq":2,"t_ns":2,"tid":5})"
      "\n");

  EXPECT_EQ(log.text(),
            "initialize seq=1 time_ns=1 @1\n"
            "memalloc id=1 size=10 addr=0x40 seq=2 time_ns=2 @3\n"
            "free id=1 thread=6 finalizer seq=3 time_ns=3 @2\n"
            "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 4: used 3, duplicate 1");
}

TEST(NumbaCalls, SaysWhereARowIsDamaged) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {R"({"op":"alloc","size":"big","ptr":1,"seq":1,"t_ns":1,"tid":1})",
       R"(run.log:1:22: size is "big": expected a count of bytes)"},
      {R"({"op":"alloc","size":1,"seq":1,"t_ns":1,"tid":1})",
       R"(run.log:1:1: ptr is "": expected an address)"},
      {R"({"op":"alloc","size":-4,"ptr":1,"seq":1,"t_ns":1,"tid":1})",
       R"(run.log:1:22: size is "-4": expected a count of bytes)"},
      {R"({"op":"pin","size":1,"ptr":1,"mapped":0,"seq":1,"t_ns":1,"tid":1})",
       R"(run.log:1:39: mapped is "0": expected true or false)"},
      {R"([1,2])", R"(run.log:1:1: op is "": expected the name of a call)"},
  };

  for (const auto& [row, words] : rows)
    EXPECT_EQ(read_calls(std::string(row) + "\n").error, words) << row;
  EXPECT_EQ(read_calls("{\"op\":\n").error.substr(0, 10), "run.log:1:");
}

TEST(NumbaCalls, TakesARecordingThatWasCutUpToItsLastWholeRowIfAsked) {
  constexpr std::string_view kCut = R"({"op":"initialize","seq":1,"t_ns":1,"tid":5})"
                                    "\n"
                                    R"({"op":"alloc","size":10,"pt)";

  EXPECT_EQ(read_calls(kCut).error, "run.log:2: the file ends inside a line: expected a whole row");
  const auto log = read_calls(kCut, true);
  EXPECT_EQ(summary(log.counts), "rows 2: used 1, truncated 1");
  EXPECT_EQ(log.text(), "initialize seq=1 time_ns=1 @1");
}

/// Whether what was made of the calls is a trace.
std::string fault_of(const std::string& calls) {
  const auto source = format::ByteSource::memory(calls);
  Trace trace;
  const auto read = (*find_importer("numba-calls"))->read(*source, trace, {});
  return read ? "" : describe(read.error());
}

TEST(NumbaCalls, KeepsTheFreesOfAResetApartFromWhatAnotherThreadsDeferralLetsComeBetween) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)", 1)
      .add(R"("op":"defer_begin")", 2)
      .add(R"("op":"reset")", 1)
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)", 1)
      .add(R"("op":"defer_end")", 2)
      .add(R"("op":"pending_flush","n":1,"bytes":10)", 2)
      .add(R"("op":"alloc","size":20,"ptr":100)", 2)
      .add(R"("op":"initialize")", 1)
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":20)", 1);

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x64 seq=1 time_ns=10 @1\n"
            "defer_cleanup thread=2 seq=2 time_ns=20 @2\n"
            "reset seq=3 time_ns=30 @3\n"
            "end_defer_cleanup thread=2 seq=5 time_ns=50 @5\n"
            "memalloc id=2 size=20 addr=0x64 thread=2 seq=7 time_ns=70 @7\n"
            "flush backing thread=2 time_ns=60 count=1 bytes=10 @6\n"
            "initialize seq=8 time_ns=80 @8\n"
            "free id=2 finalizer seq=9 time_ns=90 @9\n"
            "end events=8 live=0 live_bytes=0");
  EXPECT_EQ(fault_of(calls.text()), "");
}

TEST(NumbaCalls,
     FreesLateWhatAResetWithoutAFlushEndedEvenIfItsAddressIsTakenBeforeThatThreadGoesOn) {
  Recording calls;
  calls.add(R"("op":"alloc","size":10,"ptr":100)", 1)
      .add(R"("op":"reset")", 1)
      .add(R"("op":"pending_add","dtor":"cuMemFree","ptr":100,"size":10)", 1)
      .add(R"("op":"alloc","size":20,"ptr":100)", 2)
      .add(R"("op":"initialize")", 1);

  EXPECT_EQ(fault_of(calls.text()), "");
}

TEST(NumbaCalls, ClosesOpenGuardsAfterAllThatWasHeldBack) {
  Recording calls;
  calls.add(R"("op":"pending_flush","n":1,"bytes":64)", 2).add(R"("op":"defer_begin")", 1);

  const auto log = read_calls(calls.text());

  EXPECT_EQ(log.operations.back(), "end events=3 live=0 live_bytes=0");
  EXPECT_EQ(fault_of(calls.text()), "");
}

}  // namespace
}  // namespace emm::trace
