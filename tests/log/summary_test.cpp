#include "log/summary.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "log/summary_bytes.hpp"
#include "log/writer.hpp"

namespace emm::log {
namespace {

using trace::Op;
using trace::Outcome;

Summary failed_run() {
  Summary summary;
  summary.trace = "traces/numba/\"quoted\".jsonl";
  summary.manager = "default:profile=numba";
  summary.device = "sim";
  summary.clock = "simulated";
  summary.pass = {.events = 12345,
                  .allocs = 6000,
                  .frees = 5990,
                  .failures = 2,
                  .unmade = 1,
                  .leaked = 9,
                  .leaked_bytes = 1 << 20,
                  .hazards = 0,
                  .peak_live_bytes = 3 << 20,
                  .peak_requested_bytes = 5 << 20,
                  .peak_host_bytes = 4096,
                  .peak_reserved_bytes = 4 << 20,
                  .reserved_at_end_bytes = 2 << 20,
                  .ns_per_event = 1523.25,
                  .elapsed_ns = 18804521};
  summary.alloc_latency = Percentiles{
      .count = 6000, .p50 = 2000, .p90 = 2500, .p99 = 90000, .p999 = 100000, .max = 101000};
  summary.first_failure =
      Failure{.event = 1841,
              .line = 1843,
              .op = Op::memalloc,
              .id = "too-big",
              .size = 1ull << 40,
              .thread = 23406,
              .stream = "s3",
              .context = "c1",
              .outcome = Outcome::oom,
              .error = "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
              .frames = {"model.py:88 forward", "train.py:12 step"},
              .live_bytes = 3 << 20,
              .reserved_bytes = 4 << 20,
              .free_bytes = 1 << 20,
              .largest_free_bytes = 512 << 10,
              .idle_bytes = 1 << 20,
              .largest_idle_bytes = 256 << 10,
              .waiting_bytes = 64 << 10,
              .holders = {{.id = "weights", .size = 2 << 20, .line = 3, .frames = {"model.py:10"}},
                          {.id = "7", .size = 1000, .line = 21, .frames = {}}}};
  summary.outcomes = {.succeeded_as_recorded = 11,
                      .only_recording_succeeded = 1,
                      .only_replay_succeeded = 0,
                      .failed_as_recorded = 2};
  summary.flushes = {{.event = 10, .seq = 12, .count = 11, .bytes = 880}};
  summary.recorded_flushes = FlushComparison{
      .recorded = 42,
      .as_recorded = 41,
      .unrecorded = 0,
      .first_difference = "recorded at event 9: 1 frees, 41 bytes; the replay did not flush there"};
  summary.violations = {{.kind = Violation::Kind::overlap,
                         .event = 5,
                         .line = 7,
                         .words = "2 (1024 bytes at 0x7f0000001300) overlaps 1 (1024 bytes at "
                                  "0x7f0000001000), which is live"}};
  summary.violation_count = 1;
  summary.declined = {
      {.op = Op::get_ipc_handle, .count = 3, .why = "virtual memory has no 64-byte handle"}};
  summary.statistics = {{.context = "c1",
                         .torch = {{"allocation.all.current", 2}, {"num_ooms", 1}},
                         .rmm = {{"current_count", 2}},
                         .other = {{"metadata_bytes", 4096}}}};
  summary.skipped = 4;
  summary.notes = {"4 operations were not carried out: use"};
  summary.leaks = {{.id = "9", .size = 1 << 20, .line = 30, .frames = {"a.py:1"}}};
  return summary;
}

TEST(SummaryText, PutsWhatFailedFirst) {
  EXPECT_EQ(to_text(failed_run(), 100),
            R"(FAILED at event 1841 (line 1843): memalloc of too-big, 1.00 TiB: oom
  [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY
  thread 23406, context c1, stream s3; called from
    model.py:88 forward
    train.py:12 step
  live 3.00 MiB, reserved 4.00 MiB, free on the device 1.00 MiB, largest free block 512.00 KiB
  idle in the manager 1.00 MiB, largest piece 256.00 KiB, waiting for other streams 64.00 KiB
  biggest live allocations:
    weights  2.00 MiB  line 3  model.py:10
    7          1000 B  line 21

1 violation:
  event 5 (line 7): overlap: 2 (1024 bytes at 0x7f0000001300) overlaps 1 (1024 bytes at
    0x7f0000001000), which is live

traces/numba/"quoted".jsonl
  manager      default:profile=numba
  device       sim
  events       12,345
  served       6,000 allocations, 5,990 frees, 2 failed as recorded, 2 failures besides; 1 operation
               left out, as its allocation was not served
  peak         live 3.00 MiB, reserved 4.00 MiB
               5.00 MiB if everything asked for had been served
               host memory 4.00 KiB
  violations   1
  simulated    driver calls would take 18.80 ms on an H200, by a model: 1.52 us an event
  allocate     driver calls, simulated: p50 2.00 us, p90 2.50 us, p99 90.00 us, p99.9 100.00 us, max
               101.00 us
  outcomes     11 operations succeeded, as recorded; 2 operations failed, as recorded; 1 operation
               failed here and succeeded in the recording
  flushes      42 recorded, 41 as recorded; first difference: recorded at event 9: 1 frees, 41
               bytes; the replay did not flush there
  declined     get_ipc_handle 3 times: virtual memory has no 64-byte handle
  skipped      4 operations
  leaked       9 allocations, 1.00 MiB; the biggest:
    9  1.00 MiB  line 30  a.py:1
  note         4 operations were not carried out: use
)");
}

TEST(SummaryText, AManagerThatMadeNoDriverCallShowsADash) {
  auto summary = failed_run();
  summary.pass.elapsed_ns = 0;
  summary.pass.ns_per_event = 0;
  summary.alloc_latency->p50 = 0;

  const auto text = to_text(summary, 100);

  EXPECT_NE(text.find("  simulated    -: no driver call that takes time\n"), text.npos) << text;
  EXPECT_NE(text.find("simulated: p50 -, p90 2.50 us"), text.npos) << text;
  EXPECT_EQ(text.find(" 0 ns"), text.npos) << text;
}

TEST(SummaryText, WhatTheHostsClockMeasuredStandsApartFromTheModel) {
  auto summary = failed_run();
  summary.clock = "host";
  summary.pass.simulated_ns = 2000;
  summary.pass.simulated_ns_per_event = 500;

  const auto text = to_text(summary, 120);

  EXPECT_NE(text.find("  simulated    driver calls would take 2.00 us on an H200, by a model: "
                      "500 ns an event\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("  measured     18.80 ms here, 1.52 us an event: the manager, the simulated "
                      "device, the replay and its checks\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("  allocate     measured: p50 2.00 us"), text.npos) << text;
}

TEST(SummaryText, NoLineIsWiderThanAsked) {
  for (const int width : {60, 80, 100}) {
    const auto text = to_text(failed_run(), width);
    std::size_t column = 0;
    for (const char c : text) {
      column = c == '\n' ? 0 : column + 1;
      ASSERT_LE(column, static_cast<std::size_t>(width)) << text;
    }
  }
}

TEST(SummaryJson, HasItsKeysInAFixedOrder) {
  std::ifstream file(EMM_SOURCE_DIR "/tests/golden/log/summary.json", std::ios::binary);
  std::ostringstream golden;
  golden << file.rdbuf();

  EXPECT_EQ(to_json(failed_run()), golden.str());
}

TEST(CompareFlushes, AgreesWhereEventCountAndBytesDo) {
  const std::vector<Flush> flushes{{.event = 3, .seq = 3, .count = 11, .bytes = 880},
                                   {.event = 9, .seq = 9, .count = 1, .bytes = 8}};

  const auto comparison = compare_flushes(flushes, flushes);

  EXPECT_EQ(comparison.recorded, 2u);
  EXPECT_EQ(comparison.as_recorded, 2u);
  EXPECT_EQ(comparison.unrecorded, 0u);
  EXPECT_EQ(comparison.first_difference, "");
}

TEST(CompareFlushes, TellsTheFirstDifference) {
  const std::vector<Flush> recorded{{.event = 3, .seq = 3, .count = 11, .bytes = 880},
                                    {.event = 9, .seq = 9, .count = 1, .bytes = 8}};
  const std::vector<Flush> replayed{{.event = 2, .seq = 2, .count = 1, .bytes = 8},
                                    {.event = 9, .seq = 9, .count = 1, .bytes = 8}};

  const auto comparison = compare_flushes(recorded, replayed);

  EXPECT_EQ(comparison.as_recorded, 1u);
  EXPECT_EQ(comparison.unrecorded, 1u);
  EXPECT_EQ(comparison.first_difference,
            "replayed at event 2: 1 frees, 8 bytes; the recording has no flush there");
}

TEST(SummaryBytes, BringASummaryBackWhole) {
  auto summary = failed_run();
  summary.abnormal =
      Abnormal{.words = "it crashed", .signal = 11, .hung = true, .event = 7, .line = 9};
  summary.statistics = {{.context = "c", .torch = {{"num_ooms", 3}}, .rmm = {}, .other = {}}};

  const auto back = summary_from_bytes(to_bytes(summary));

  ASSERT_TRUE(back);
  EXPECT_EQ(to_json(*back), to_json(summary));
  EXPECT_EQ(to_text(*back), to_text(summary));
  EXPECT_EQ(back->abnormal->signal, 11);
}

TEST(SummaryBytes, ThatAreCutAreNoSummary) {
  const auto bytes = to_bytes(failed_run());

  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(summary_from_bytes(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(summary_from_bytes(bytes + "x"));
}

}  // namespace
}  // namespace emm::log
