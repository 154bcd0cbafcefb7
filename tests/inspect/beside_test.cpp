#include "inspect/beside.hpp"

#include <gtest/gtest.h>

#include "recorded.hpp"

namespace emm::inspect {
namespace {

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
// 2026-03-01 09:00:00 UTC
constexpr std::string_view kClock =
    ",\"clock\":{\"source\":\"CLOCK_MONOTONIC\",\"start_ns\":0,\"start_realtime_ns\":"
    "\"1772355600000000000\"}";
constexpr std::string_view kLines =
    R"({"op":"memalloc","layer":"backing","id":"s","size":104857600,"time_ns":0}
{"op":"memalloc","layer":"backing","id":"t","size":209715200,"time_ns":1500000000}
{"op":"free","layer":"backing","id":"t","time_ns":3500000000}
{"op":"memalloc","id":1,"size":5,"time_ns":4500000000}
)";

Beside beside_of(std::string_view csv, std::int64_t zone_here, std::string_view header = kClock,
                 std::string_view lines = kLines) {
  const auto recording = recorded(lines, header);
  const auto source = format::ByteSource::memory(csv, "smi.csv");
  std::vector<SmiRow> rows;
  const auto file = each_smi_row(*source, [&](const SmiRow& row) { rows.push_back(row); });
  EXPECT_TRUE(file);
  return beside(trace::Lifetimes(recording->trace()), rows, *file, zone_here);
}

constexpr std::string_view kCsv =
    "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    "2026/03/01 09:59:59.000, GPU-1, 77, python, 400 MiB\n"
    "2026/03/01 10:00:00.000, GPU-1, 77, python, 600 MiB\n"
    "2026/03/01 10:00:00.000, GPU-1, 78, Xorg, 30 MiB\n"
    "2026/03/01 10:00:01.000, GPU-1, 77, python, 610 MiB\n"
    "2026/03/01 10:00:02.000, GPU-1, 77, python, 830 MiB\n"
    "2026/03/01 10:00:02.000, GPU-1, 78, Xorg, [N/A]\n"
    "2026/03/01 10:00:03.000, GPU-1, 77, python, 830 MiB\n"
    "2026/03/01 10:00:04.000, GPU-1, 77, python, 640 MiB\n";

TEST(Beside, IsWhatTheDriverCountsLessWhatWasReservedThen) {
  const auto found = beside_of(kCsv, 3600);

  EXPECT_EQ(found.zone_seconds, 3600);
  ASSERT_EQ(found.pairs.size(), 2u);
  const auto& own = found.pairs[0];
  EXPECT_TRUE(own.is_possible);
  ASSERT_EQ(own.samples.size(), 5u) << "one sample is from before the recording";
  EXPECT_EQ(own.samples[0].held, Stated::exactly(100 * kMebi));
  EXPECT_EQ(own.samples[0].outside, (Stated{499 * kMebi, 501 * kMebi}));
  EXPECT_EQ(own.samples[1].held, (Stated{100 * kMebi, 300 * kMebi}))
      << "between two samples the manager took a segment";
  EXPECT_EQ(own.samples[1].outside, (Stated{309 * kMebi, 511 * kMebi}));
  EXPECT_EQ(own.samples[2].outside, (Stated{529 * kMebi, 531 * kMebi}));
  EXPECT_FALSE(found.pairs[1].is_possible) << "Xorg holds less than the program's allocator";
}

TEST(Beside, FindsTheOnlyZoneInWhichTheTwoMeet) {
  EXPECT_EQ(beside_of(kCsv, -5 * 3600).zone_seconds, 3600);
}

TEST(Beside, SaysWhyNothingIsMatched) {
  const auto clockless = beside_of(kCsv, 3600, "");
  EXPECT_NE(clockless.unmatched.find("time of day"), std::string::npos);
  EXPECT_FALSE(clockless.outside_least) << "there are two processes";

  const auto timeless = beside_of("index, memory.used [MiB]\n0, 830 MiB\n0, 700 MiB\n", 3600);
  EXPECT_NE(timeless.unmatched.find("timestamp"), std::string::npos);
  EXPECT_EQ(timeless.outside_least, 529 * kMebi) << "830 MiB, rounded, less 300 MiB";

  const auto elsewhere =
      beside_of("timestamp, index, memory.used [MiB]\n2020/01/01 10:00:00.000, 0, 830 MiB\n", 3600);
  EXPECT_NE(elsewhere.unmatched.find("no time zone"), std::string::npos);

  std::string hours = "timestamp, index, memory.used [MiB]\n";
  for (int hour = 10; hour < 20; ++hour)
    hours += "2026/03/01 " + std::to_string(hour) + ":00:00.500, 0, 830 MiB\n";
  EXPECT_NE(beside_of(hours, -5 * 3600).unmatched.find("several fit"), std::string::npos);
  EXPECT_EQ(beside_of(hours, 3600).zone_seconds, 3600) << "this machine's zone fits";
}

TEST(Beside, OfARecordingWithoutSegmentsIsWhatIsNotLive) {
  const auto found =
      beside_of("timestamp, index, memory.used [MiB]\n2026/03/01 09:00:00.000, 0, 830 MiB\n", 0,
                kClock, R"({"op":"memalloc","id":1,"size":104857600,"time_ns":0}
{"op":"mark","text":"x","time_ns":1000000}
)");

  EXPECT_FALSE(found.of_reserved);
  ASSERT_EQ(found.pairs.size(), 1u);
  EXPECT_EQ(found.pairs[0].samples[0].outside, (Stated{729 * kMebi, 731 * kMebi}));
}

}  // namespace
}  // namespace emm::inspect
