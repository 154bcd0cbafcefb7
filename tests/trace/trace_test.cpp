#include "trace/trace.hpp"

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "tests/trace/trace_text.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

std::string fault(std::string_view lines) {
  const auto trace = loaded(with_header(lines));
  return trace ? "" : describe(trace.error());
}

TEST(Trace, HoldsWhatAReplayNeeds) {
  const auto trace = loaded(
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"devices\":[{\"id\":1,\"capacity\":4096}],"
      "\"defaults\":{\"device\":1,\"expect\":\"ok\"}}\n"
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":9,\"frames\":[\"inner\",\"outer\"]}\n"
      "{\"op\":\"memhostalloc\",\"id\":\"h\",\"size\":10,\"mapped\":true,\"wc\":true,\"time_ns\":"
      "1000,\"thread\":77,\"site\":9}\n"
      "{\"op\":\"memalloc\",\"id\":5,\"size\":20,\"time_ns\":1500,\"thread\":\"main\",\"stream\":"
      "\"s\",\"result\":{\"outcome\":\"oom\",\"code\":2}}\n"
      "{\"op\":\"memallocmanaged\",\"id\":6,\"size\":30,\"attach\":\"host\",\"expect\":{\"align\":"
      "512}}\n"
      "{\"op\":\"free\",\"id\":\"h\"}\n{\"op\":\"x-y\"}\n{\"op\":\"end\"}\n");
  ASSERT_TRUE(trace) << describe(trace.error());

  ASSERT_EQ(trace->size(), 4u);
  const auto& host = (*trace)[0];
  EXPECT_EQ(host.op, Op::memhostalloc);
  EXPECT_EQ(host.line, 3u);
  EXPECT_EQ(host.size, 10u);
  EXPECT_EQ(host.flags, event_flag::mapped | event_flag::wc);
  EXPECT_EQ(host.expected(), Outcome::ok);
  EXPECT_EQ(trace->site_frames(host.site), (std::vector<std::string>{"inner", "outer"}));
  EXPECT_EQ(trace->thread_number(host.thread), 77u);
  EXPECT_EQ(trace->name(host.id), "h");
  const auto& failed = (*trace)[1];
  EXPECT_EQ(failed.time_ns, 500u);
  EXPECT_EQ(failed.recorded(), Outcome::oom);
  EXPECT_EQ(trace->detail(failed).code, 2);
  EXPECT_EQ(trace->streams(), (std::vector<std::string>{"legacy", "s"}));
  EXPECT_EQ(trace->stream_number(failed.stream), 1u);
  const auto& managed = (*trace)[2];
  EXPECT_TRUE(managed.has(event_flag::attach_host));
  EXPECT_EQ(trace->detail(managed).expect.align, 512u);
  EXPECT_EQ(managed.expected(), Outcome::ok) << "the default holds where expect has no outcome";
  EXPECT_EQ(managed.time_ns, 500u) << "without a time of its own, that of the event before";
  EXPECT_EQ((*trace)[3].id, host.id);
  EXPECT_EQ(trace->threads(), (std::vector<std::string>{"77", "main", "0"}));
  EXPECT_EQ(trace->alloc_count(), 3u);
  EXPECT_EQ(trace->capacity(1), 4096u);
  EXPECT_EQ(trace->capacity(0), 0u);
  EXPECT_EQ(trace->contexts().size(), 1u);
  EXPECT_EQ(trace->contexts()[0].device, 1u);
  EXPECT_EQ(trace->extensions_skipped(), 1u);
  EXPECT_EQ(trace->peak_live_allocs(), 2u) << "what failed never lived";
}

TEST(Trace, AnIdIsOneAllocationOverTheWholeTrace) {
  EXPECT_EQ(fault("{\"op\":\"memalloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":1}\n{\"op\":"
                  "\"memalloc\",\"id\":\"1\",\"size\":1}\n"),
            "x.json:4: id 1 for the second time: expected one for each allocation");
  EXPECT_EQ(fault("{\"op\":\"free\",\"id\":\"w\"}\n"),
            "x.json:2: free of id w, which nothing made: expected a memalloc before");
  EXPECT_EQ(fault("{\"op\":\"memalloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":1}\n{\"op\":"
                  "\"free\",\"id\":1}\n"),
            "x.json:4: free of id 1, which ended before: expected it to be live");
  EXPECT_EQ(fault("{\"op\":\"memalloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":1}\n{\"op\":"
                  "\"get_ipc_handle\",\"id\":1,\"handle\":1}\n"),
            "x.json:4: get_ipc_handle of id 1, which ended before: expected it to be live");
  EXPECT_EQ(fault("{\"op\":\"use\",\"ids\":[3]}\n"),
            "x.json:2: use of id 3, which nothing made: expected a memalloc before");
  EXPECT_EQ(
      fault("{\"op\":\"memalloc\",\"id\":1,\"size\":1}\n{\"op\":\"close_ipc_handle\",\"id\":1}\n"),
      "x.json:3: close_ipc_handle of id 1, which memalloc made: expected open_ipc_handle");
}

TEST(Trace, AFreeAfterAResetOfItsContextIsLate) {
  const auto trace =
      loaded(with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":1,\"context\":\"a\"}\n{\"op\":"
                         "\"memalloc\",\"id\":2,\"size\":1,\"context\":\"b\"}\n"
                         "{\"op\":\"reset\",\"context\":\"a\"}\n{\"op\":\"memalloc\",\"id\":3,"
                         "\"size\":1,\"context\":\"a\"}\n"
                         "{\"op\":\"free\",\"id\":1,\"context\":\"a\"}\n{\"op\":\"free\",\"id\":2,"
                         "\"context\":\"b\"}\n{\"op\":\"free\",\"id\":3,\"context\":\"a\"}\n"));
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_TRUE((*trace)[4].has(event_flag::late));
  EXPECT_FALSE((*trace)[5].has(event_flag::late));
  EXPECT_FALSE((*trace)[6].has(event_flag::late));
  EXPECT_EQ(trace->peak_live_allocs(), 2u);
}

TEST(Trace, DeferCleanupIsBalancedForEachContext) {
  EXPECT_EQ(fault("{\"op\":\"defer_cleanup\"}\n{\"op\":\"defer_cleanup\"}\n{\"op\":\"end_defer_"
                  "cleanup\"}\n"),
            "");
  EXPECT_EQ(fault("{\"op\":\"end_defer_cleanup\"}\n"),
            "x.json:2: end_defer_cleanup: expected a defer_cleanup before it in its context");
  EXPECT_EQ(fault("{\"op\":\"defer_cleanup\",\"context\":\"a\"}\n{\"op\":\"end_defer_cleanup\","
                  "\"context\":\"b\"}\n"),
            "x.json:3: end_defer_cleanup: expected a defer_cleanup before it in context b");
}

TEST(Trace, AContextIsOnOneDevice) {
  EXPECT_EQ(fault("{\"op\":\"initialize\",\"context\":\"a\",\"device\":0}\n{\"op\":\"reset\","
                  "\"context\":\"a\"}\n{\"op\":\"reset\",\"context\":\"a\",\"device\":1}\n"),
            "x.json:4: context a on device 1, and on device 0 before: expected one device");
  const auto trace = loaded(with_header(
      "{\"op\":\"reset\"}\n{\"op\":\"reset\",\"device\":1}\n{\"op\":\"reset\",\"device\":0}\n"));
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->contexts().size(), 2u) << "without names, one for each device";
  EXPECT_EQ(trace->device_count(), 2u);
  EXPECT_EQ((*trace)[0].context, (*trace)[2].context);
}

TEST(Trace, ThereAreNoMoreContextsThanAnEventCanName) {
  std::string lines;
  for (int i = 0; i < 257; ++i)
    lines += text::format("{\"op\":\"initialize\",\"context\":{}}\n", i);
  EXPECT_EQ(fault(lines),
            "x.json:258: one context too many: expected no more than a replay can tell apart");
}

TEST(Trace, SeqIsTheOrderWhateverTheLines) {
  const auto trace = loaded(with_header(
      "{\"op\":\"free\",\"seq\":7,\"id\":1}\n{\"op\":\"memalloc\",\"seq\":4,\"id\":2,\"size\":2}\n"
      "{\"op\":\"memalloc\",\"seq\":3,\"id\":1,\"size\":1}\n{\"op\":\"free\",\"seq\":5,\"id\":2}"
      "\n"));
  ASSERT_TRUE(trace) << describe(trace.error());

  std::vector<std::uint32_t> lines;
  for (std::size_t i = 0; i < trace->size(); ++i) lines.push_back((*trace)[i].line);
  EXPECT_EQ(lines, (std::vector<std::uint32_t>{4, 3, 5, 2}));
  EXPECT_EQ(trace->name((*trace)[0].id), "1");

  EXPECT_EQ(fault("{\"op\":\"reset\",\"seq\":1}\n{\"op\":\"reset\",\"seq\":2}\n{\"op\":\"reset\","
                  "\"seq\":1}\n"),
            "x.json:4: seq 1 for the second time: expected each seq once");
}

TEST(Trace, AnUnsortedTraceIsTheSortedOne) {
  constexpr std::uint64_t kEvents = 50'000;
  Prng random(3);
  std::vector<std::string> lines;
  for (std::uint64_t seq = 0; seq < kEvents; ++seq) {
    lines.push_back(seq % 2 == 0
                        ? text::format("{\"op\":\"memalloc\",\"seq\":{},\"id\":{},\"size\":{}}\n",
                                       seq, seq, seq + 1)
                        : text::format("{\"op\":\"free\",\"seq\":{},\"id\":{}}\n", seq, seq - 1));
  }
  const auto sorted = loaded(with_header(text::join(lines, "")));
  for (std::size_t i = 0; i + 200 < lines.size(); ++i)
    std::swap(lines[i], lines[i + random.below(200)]);
  const auto shuffled = loaded(with_header(text::join(lines, "")));

  ASSERT_TRUE(sorted);
  ASSERT_TRUE(shuffled) << describe(shuffled.error());
  ASSERT_EQ(shuffled->size(), kEvents);
  for (std::size_t i = 0; i < kEvents; ++i) {
    ASSERT_EQ((*shuffled)[i].size, (*sorted)[i].size) << i;
    ASSERT_EQ(shuffled->name((*shuffled)[i].id), sorted->name((*sorted)[i].id)) << i;
  }
}

TEST(Trace, TellsProcessesHandlesAndBuffersApart) {
  const auto trace =
      loaded(with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":1}\n{\"op\":\"get_ipc_handle\","
                         "\"id\":1,\"handle\":\"h\"}\n"
                         "{\"op\":\"open_ipc_handle\",\"id\":2,\"handle\":\"h\",\"process\":"
                         "\"peer\",\"expect\":{\"same_as\":1}}\n"
                         "{\"op\":\"mempin\",\"id\":3,\"size\":8,\"buffer\":\"b\",\"offset\":16,"
                         "\"page_offset\":4}\n"));
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_EQ(trace->detail((*trace)[1]).handle, 1u);
  const auto& open = trace->detail((*trace)[2]);
  EXPECT_EQ(open.handle, 1u);
  EXPECT_EQ(open.process, 1u);
  EXPECT_TRUE(open.has_same_as);
  EXPECT_EQ(open.same_as, (*trace)[0].id);
  EXPECT_EQ(trace->processes(), (std::vector<std::string>{"", "peer"}));
  const auto& pin = trace->detail((*trace)[3]);
  EXPECT_EQ(pin.buffer, 1u);
  EXPECT_EQ(pin.offset, 16u);
  EXPECT_EQ(pin.page_offset, 4u);
}

TEST(Trace, ARecordingThatNamesItsProcessOnEachEventIsOfOneProcess) {
  const auto trace =
      loaded(with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":1,\"process\":42}\n{\"op\":"
                         "\"free\",\"id\":1,\"process\":42}\n"));
  ASSERT_TRUE(trace);

  EXPECT_EQ(trace->processes(), (std::vector<std::string>{"42"}));
  EXPECT_EQ(trace->detail((*trace)[1]).process, 0u);
}

TEST(Trace, AnEventTakesNoMoreThan64Bytes) {
  constexpr std::uint64_t kEvents = 1'000'000;
  for (const bool only_allocs : {false, true}) {
    for (const bool with_seq_gaps : {false, true}) {
      Trace trace;
      ASSERT_TRUE(trace.on_header({}));
      Operation operation;
      std::uint64_t worst = 0;
      for (std::uint64_t i = 0; i < kEvents; ++i) {
        const bool frees = !only_allocs && i % 2 == 1;
        operation.op = frees ? Op::free : Op::memalloc;
        operation.members = frees ? Members(Member::id) : Members(Member::id, Member::size);
        operation.id = Id::of(only_allocs ? i : i / 2);
        operation.size = i;
        if (with_seq_gaps) {
          operation.seq = 3 * i;
          operation.members.add(Member::seq);
        }
        ASSERT_TRUE(trace.on_operation(operation));
        if (i % 65536 == 65535) worst = std::max(worst, trace.memory_bytes() * 100 / (i + 1));
      }
      ASSERT_TRUE(trace.finish());
      worst = std::max(worst, trace.memory_bytes() * 100 / kEvents);
      EXPECT_LE(worst, 6400u) << only_allocs << with_seq_gaps;
    }
  }
}

TEST(Trace, EqualDetailsAreKeptOnce) {
  std::string lines;
  for (int i = 0; i < 10'000; ++i) {
    lines += text::format(
        "{\"op\":\"memalloc\",\"id\":{},\"size\":1,\"expect\":{\"align\":256},\"label\":\"a label "
        "that is long enough to be on the heap\"}\n",
        i);
  }
  const auto trace = loaded(with_header(lines));
  ASSERT_TRUE(trace);

  EXPECT_EQ((*trace)[0].detail, (*trace)[9'999].detail);
  EXPECT_LT(trace->memory_bytes() / trace->size(), 80u) << "the last block of events is not full";
}

TEST(Trace, KnowsDevicesByTheirOwnOrdinals) {
  const auto trace = loaded(
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"devices\":[{\"id\":0,\"capacity\":7},"
      "{\"id\":2,\"capacity\":4096},{\"id\":5,\"capacity\":1024}]}\n"
      "{\"op\":\"memalloc\",\"id\":1,\"size\":8,\"device\":5}\n"
      "{\"op\":\"memalloc\",\"id\":2,\"size\":8,\"device\":2}\n"
      "{\"op\":\"free\",\"id\":1,\"device\":5}\n"
      "{\"op\":\"free\",\"id\":2,\"device\":2}\n{\"op\":\"end\"}\n");
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_EQ(trace->devices(), (std::vector<std::uint32_t>{2, 5}));
  EXPECT_EQ(trace->least_capacity(), 1024u) << "of the devices that the trace is on";
}

TEST(Trace, CountsNoDeviceForWhatIsAboutTheTraceItself) {
  const auto trace =
      loaded(with_header("{\"op\":\"gap\",\"reason\":\"the ring "
                         "overflowed\"}\n{\"op\":\"thread_begin\",\"thread\":1}\n"
                         "{\"op\":\"mark\",\"text\":\"step\"}\n"
                         "{\"op\":\"memalloc\",\"id\":1,\"size\":8,\"device\":3,\"thread\":1}\n"
                         "{\"op\":\"free\",\"id\":1,\"device\":3,\"thread\":1}\n{\"op\":\"thread_"
                         "end\",\"thread\":1}\n"));
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_EQ(trace->devices(), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(trace->contexts().size(), 1u);
}

TEST(Trace, PutsWhatSaysNoDeviceWhereTheMemoryIsThatItNames) {
  const auto trace = loaded(
      with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":8,\"device\":3}\n"
                  "{\"op\":\"memalloc\",\"id\":2,\"size\":8,\"context\":\"c\",\"device\":4}\n"
                  "{\"op\":\"use\",\"ids\":[1]}\n"
                  "{\"op\":\"record_stream\",\"id\":2,\"stream\":\"s\"}\n"
                  "{\"op\":\"get_ipc_handle\",\"id\":2,\"handle\":\"h\"}\n"
                  "{\"op\":\"open_ipc_handle\",\"handle\":\"h\",\"id\":9,\"process\":\"peer\"}\n"
                  "{\"op\":\"close_ipc_handle\",\"id\":9,\"process\":\"peer\"}\n"
                  "{\"op\":\"free\",\"id\":1}\n{\"op\":\"free\",\"id\":2}\n"));
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_EQ(trace->devices(), (std::vector<std::uint32_t>{3, 4}));
  std::vector<std::uint32_t> on;
  for (std::size_t i = 0; i < trace->size(); ++i) {
    on.push_back(trace->contexts()[index((*trace)[i].context)].device);
    EXPECT_EQ((*trace)[i].flags, 0) << i;
  }
  EXPECT_EQ(on, (std::vector<std::uint32_t>{3, 4, 3, 4, 4, 4, 4, 3, 4}));
}

TEST(Trace, TakesTheHeadersDefaultForWhatSaysNoDevice) {
  const auto trace = loaded(
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"defaults\":{\"device\":6}}\n"
      "{\"op\":\"memalloc\",\"id\":1,\"size\":8}\n{\"op\":\"free\",\"id\":1}\n{\"op\":\"end\"}\n");
  ASSERT_TRUE(trace) << describe(trace.error());

  EXPECT_EQ(trace->devices(), (std::vector<std::uint32_t>{6}));
}

}  // namespace
}  // namespace emm::trace
