#include "inspect/oom.hpp"

#include <gtest/gtest.h>

#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

constexpr std::string_view kDevice = R"(,"devices":[{"id":0,"capacity":1000,"granularity":10}])";

Oom only(std::string_view lines, std::string_view members = kDevice) {
  const auto recording = recorded(lines, members);
  const Lives lives(recording->trace());
  auto report = find_ooms(*recording, lives);
  EXPECT_EQ(report.all.size(), 1u);
  return report.all.empty() ? Oom{} : report.all[0];
}

TEST(OutOfMemory, IsTheProgramsNeedWhereLiveAndRequestExceedTheDevice) {
  const auto oom = only(R"({"op":"memalloc","id":1,"size":600}
{"op":"memalloc","id":2,"size":401,"result":"oom"}
)");

  EXPECT_EQ(oom.cause, Cause::need);
  EXPECT_EQ(oom.live, 600u);
  EXPECT_EQ(oom.enough, 1001u);
}

TEST(OutOfMemory, IsTheManagersWasteWhereTheyFitAndItHeldTheRest) {
  const auto oom = only(R"({"op":"memalloc","layer":"backing","id":"s1","size":900,"addr":"0x1000"}
{"op":"memalloc","id":1,"size":100,"addr":"0x1100"}
{"op":"memalloc","id":2,"size":695,"result":"oom"}
)");

  EXPECT_EQ(oom.cause, Cause::waste);
  EXPECT_EQ(oom.excess, 800u);
  EXPECT_EQ(oom.enough, 900u + 700u);
  ASSERT_TRUE(oom.space);
  EXPECT_EQ(oom.space->largest_free, 544u);
}

TEST(OutOfMemory, IsALimitWhereTheDeviceHadRoom) {
  const auto oom = only(R"({"op":"memalloc","layer":"backing","id":"s1","size":200}
{"op":"memalloc","id":1,"size":150}
{"op":"memalloc","id":2,"size":95,"result":"oom","x-device_free":790}
)");

  EXPECT_EQ(oom.cause, Cause::limit);
  EXPECT_EQ(oom.device_free, 790u);
  EXPECT_EQ(oom.enough, 300u);
}

TEST(OutOfMemory, IsALimitWhereTheManagerHeldFarLessThanTheDeviceHas) {
  const auto oom = only(R"({"op":"memalloc","layer":"backing","id":"s1","size":200}
{"op":"memalloc","id":2,"size":95,"result":"oom"}
)");

  EXPECT_EQ(oom.cause, Cause::limit);
}

TEST(OutOfMemory, IsOfOthersWhereTheyHeldWhatTheProgramNeeded) {
  const auto oom = only(R"({"op":"memalloc","layer":"backing","id":"s1","size":200}
{"op":"memalloc","id":1,"size":200}
{"op":"memalloc","id":2,"size":300,"result":"oom","x-device_free":100}
)");

  EXPECT_EQ(oom.cause, Cause::others);
  EXPECT_EQ(oom.excess, 700u);
  EXPECT_EQ(oom.enough, 200u);
}

TEST(OutOfMemory, HasNoKnownCauseWhereTheTraceDoesNotSayWhatTheDeviceHas) {
  EXPECT_EQ(only(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})" "\n", "").cause, Cause::not_known);
  EXPECT_EQ(only(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})" "\n").cause, Cause::not_known);
}

TEST(OutOfMemory, TakesTheCapacityThatAPersonGives) {
  const auto recording = recorded(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})" "\n", kDevice);
  const Lives lives(recording->trace());

  EXPECT_EQ(find_ooms(*recording, lives, 299).all.at(0).cause, Cause::need);
}

TEST(OutOfMemory, TakesTheCapacityThatTheProgramWasTold) {
  const auto oom = only(R"({"op":"get_memory_info","free":90,"total":100}
{"op":"memalloc","id":2,"size":300,"result":"oom"}
)", "");

  EXPECT_EQ(oom.capacity, 100u);
  EXPECT_EQ(oom.cause, Cause::need);
}

TEST(OutOfMemory, IsNotWhatATraceExpectsButNobodyRecorded) {
  const auto recording = recorded(R"({"op":"memalloc","id":2,"size":3000,"expect":"oom"})" "\n", kDevice);
  const Lives lives(recording->trace());

  EXPECT_TRUE(find_ooms(*recording, lives).all.empty());
}

TEST(OutOfMemory, IsFoundWithTheStateBeforeItInRandomRecordings) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto random = random_recording(seed, 300);
    const auto recording = recorded(random.lines);
    const Lives lives(recording->trace());

    const auto report = find_ooms(*recording, lives);

    std::size_t next = 0;
    std::uint64_t needed = 0;
    std::vector<Written> live, segments;
    const auto sum = [](const std::vector<Written>& of) {
      std::uint64_t bytes = 0;
      for (const auto& each : of) bytes += each.size;
      return bytes;
    };
    for (std::size_t i = 0; i < random.operations.size(); ++i) {
      const auto& each = random.operations[i];
      const auto same_id = [&](const Written& other) { return other.id == each.id; };
      switch (each.what) {
        case Written::What::memalloc: live.push_back(each); break;
        case Written::What::segment: segments.push_back(each); break;
        case Written::What::free: std::erase_if(live, same_id); break;
        case Written::What::segment_free: std::erase_if(segments, same_id); break;
        case Written::What::reset: std::erase_if(live, [&](const Written& other) { return other.context == each.context; }); break;
        case Written::What::oom:
          ASSERT_LT(next, report.all.size());
          EXPECT_EQ(report.all[next].event, i);
          EXPECT_EQ(report.all[next].request, each.size);
          EXPECT_EQ(report.all[next].live, sum(live));
          EXPECT_EQ(report.all[next].live_count, live.size());
          EXPECT_EQ(report.all[next].reserved.value_or(0), sum(segments));
          needed = std::max(needed, sum(live) + each.size);
          ++next;
          break;
        default: break;
      }
      needed = std::max(needed, sum(live));
    }
    EXPECT_EQ(next, report.all.size());
    EXPECT_EQ(report.peak_needed, needed);
  }
}

}  // namespace
}  // namespace emm::inspect
