#include <gtest/gtest.h>

#include <algorithm>

#include "inspect/oom_text.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

constexpr std::string_view kDevice = R"(,"devices":[{"id":0,"capacity":1000,"granularity":10}])";

Oom only(std::string_view lines, std::string_view members = kDevice) {
  const auto recording = recorded(lines, members);
  const trace::Lifetimes lifetimes(recording->trace());
  auto report = find_ooms(*recording, lifetimes);
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
  EXPECT_EQ(only(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})"
                 "\n",
                 "")
                .cause,
            Cause::not_known);
  EXPECT_EQ(only(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})"
                 "\n")
                .cause,
            Cause::not_known);
}

TEST(OutOfMemory, TakesTheCapacityThatAPersonGives) {
  const auto recording = recorded(R"({"op":"memalloc","id":2,"size":300,"result":"oom"})"
                                  "\n",
                                  kDevice);
  const trace::Lifetimes lifetimes(recording->trace());

  EXPECT_EQ(find_ooms(*recording, lifetimes, 299).all.at(0).cause, Cause::need);
}

TEST(OutOfMemory, TakesTheCapacityThatTheProgramWasTold) {
  const auto oom = only(R"({"op":"get_memory_info","free":90,"total":100}
{"op":"memalloc","id":2,"size":300,"result":"oom"}
)",
                        "");

  EXPECT_EQ(oom.capacity, 100u);
  EXPECT_EQ(oom.cause, Cause::need);
}

/// Without its ends of lines.
std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

TEST(OutOfMemory, HasNoKnownCauseWhereOthersMayHoldADeviceOfUnknownCapacity) {
  constexpr std::string_view kLines = R"({"op":"memalloc","layer":"backing","id":"s1","size":200}
{"op":"memalloc","id":1,"size":200}
{"op":"memalloc","id":2,"size":200,"result":"oom","x-device_free":150}
)";
  const auto recording = recorded(kLines);
  const trace::Lifetimes lifetimes(recording->trace());

  EXPECT_EQ(only(kLines, "").cause, Cause::not_known);
  EXPECT_EQ(find_ooms(*recording, lifetimes, 8000).all.at(0).cause, Cause::others);
  EXPECT_EQ(find_ooms(*recording, lifetimes, 350).all.at(0).cause, Cause::need);
  const auto text =
      on_one_line(to_text(*recording, lifetimes, find_ooms(*recording, lifetimes), 0, {}));
  EXPECT_NE(
      text.find(
          "50 B more than the 200 bytes that the manager held and the 150 bytes that the device"),
      text.npos)
      << text;
  EXPECT_NE(text.find("--capacity SIZE"), text.npos) << text;
}

TEST(OutOfMemory, HasNoKnownCauseWhereTheSegmentsAreNotAllThatThereWere) {
  constexpr std::string_view kLines =
      R"({"op":"memalloc","layer":"backing","id":"s1","size":20971520}
{"op":"memalloc","id":1,"size":41943040}
{"op":"memalloc","id":2,"size":10485760,"result":"oom"}
)";
  const auto recording = recorded(kLines);
  const trace::Lifetimes lifetimes(recording->trace());

  const auto oom = find_ooms(*recording, lifetimes, 104857600).all.at(0);
  EXPECT_EQ(oom.cause, Cause::not_known);
  EXPECT_FALSE(oom.reserved);
}

TEST(OutOfMemory, SaysBesideTheManagersWasteWhatOthersHeld) {
  const auto recording = recorded(R"({"op":"memalloc","layer":"backing","id":"s1","size":41943040}
{"op":"memalloc","id":1,"size":20971520}
{"op":"memalloc","id":2,"size":10485760,"result":"oom","x-device_free":5242880}
)");
  const trace::Lifetimes lifetimes(recording->trace());
  const auto text = [&](std::uint64_t capacity) {
    const auto report = find_ooms(*recording, lifetimes, capacity);
    EXPECT_EQ(report.all.at(0).cause, Cause::waste);
    return on_one_line(to_text(*recording, lifetimes, report, 0, {}));
  };

  EXPECT_NE(
      text(104857600).find(
          "Others on the device (another process, another library or the driver) held 55.00 MiB"),
      std::string::npos)
      << text(104857600);
  EXPECT_EQ(text(48234496).find("Others on the device"), std::string::npos)
      << "1 MiB would not have been enough";
}

TEST(OutOfMemory, CountsTheFreeMemoryWhereItSaysHowMuchMoreWouldHaveBeenEnough) {
  const auto recording = recorded(R"({"op":"memalloc","layer":"backing","id":"s1","size":20971520}
{"op":"memalloc","id":1,"size":1048576}
{"op":"memalloc","id":2,"size":4194304,"result":"oom","x-device_free":3145728}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto text =
      on_one_line(to_text(*recording, lifetimes, find_ooms(*recording, lifetimes), 0, {}));

  EXPECT_NE(text.find("1.00 MiB more than the 20.00 MiB that it held and the 3.00 MiB that the "
                      "device had free"),
            text.npos)
      << text;
}

constexpr std::string_view kTwoDevices = R"({"op":"context_create","context":"a","device":0}
{"op":"context_create","context":"b","device":3}
{"op":"memalloc","context":"a","id":1,"size":700}
{"op":"memalloc","context":"b","id":2,"size":300}
{"op":"memalloc","context":"b","id":3,"size":800,"result":"oom"}
{"op":"free","context":"a","id":1}
)";

TEST(OutOfMemory, IsOfOneDeviceWhateverOthersHold) {
  const auto recording =
      recorded(kTwoDevices, R"(,"devices":[{"id":0,"capacity":1000},{"id":3,"capacity":1000}])");
  const trace::Lifetimes lifetimes(recording->trace());
  const auto report = find_ooms(*recording, lifetimes);
  ASSERT_EQ(report.all.size(), 1u);

  EXPECT_EQ(report.devices.at(0).needed, 700u);
  EXPECT_EQ(report.devices.at(3).live, 300u);
  EXPECT_EQ(report.devices.at(3).needed, 1100u);
  const auto text = on_one_line(to_text(*recording, lifetimes, report, 0, {}));
  EXPECT_NE(text.find("on device 3"), text.npos) << text;
  EXPECT_EQ(text.find("1,800 bytes"), text.npos) << text;
  const auto json =
      to_json(*recording, lifetimes, report, 0, fit_checks(*recording, lifetimes, {}), 10);
  EXPECT_NE(json.find(R"("device":3,"peak_live_bytes":300,"peak_needed_bytes":1100,)"), json.npos)
      << json;
}

TEST(FitCheck, SaysOfEachDeviceWhetherATraceThatNeverFailedWould) {
  using Verdict = FitCheck::Verdict;
  const auto recording = recorded(R"({"op":"context_create","context":"a","device":0}
{"op":"context_create","context":"b","device":3}
{"op":"memalloc","layer":"backing","context":"a","id":"s1","size":600}
{"op":"memalloc","context":"a","id":1,"size":500,"stream":"x"}
{"op":"free","context":"a","id":1,"stream":"x"}
{"op":"memalloc","context":"a","id":2,"size":400,"stream":"y"}
{"op":"memalloc","context":"b","id":3,"size":100}
{"op":"memalloc","context":"b","id":4,"size":250}
)",
                                  R"(,"requires":["streams"])");
  const trace::Lifetimes lifetimes(recording->trace());
  const auto at = [&](std::uint64_t capacity) {
    return fit_checks(*recording, lifetimes, capacity);
  };

  EXPECT_EQ(at(200)[0].verdict, Verdict::fails);
  EXPECT_EQ(at(200)[1].device, 3u);
  ASSERT_TRUE(at(200)[1].live_overrun);
  EXPECT_EQ(at(200)[1].live_overrun->event, 7u);
  EXPECT_EQ(at(200)[1].live_overrun->held, 350u);
  EXPECT_EQ(at(550)[0].verdict, Verdict::depends) << "the recorded manager held more";
  EXPECT_EQ(at(550)[0].reserved_overrun->event, 2u);
  EXPECT_EQ(at(700)[0].verdict, Verdict::depends)
      << "the two streams share nothing without waiting";
  EXPECT_EQ(at(700)[0].no_wait, 900u);
  EXPECT_EQ(at(900)[0].verdict, Verdict::fits);
  EXPECT_EQ(at(350)[1].verdict, Verdict::fits);
}

TEST(FitCheck, OfAStateWithoutHistoryIsWhatIsHeldInIt) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","id":"s1","size":1000,"addr":"0x1000","preexisting":true}
{"op":"memalloc","id":1,"size":300,"addr":"0x1000","preexisting":true}
{"op":"memalloc","id":2,"size":200,"addr":"0x1300","preexisting":true}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto fit_check = fit_checks(*recording, lifetimes, 1500).at(0);
  const auto text = on_one_line(to_text(*recording, lifetimes, {fit_check}, "x.jsonl", {}));

  EXPECT_FALSE(fit_check.has_history);
  ASSERT_TRUE(fit_check.space);
  EXPECT_EQ(fit_check.space->free, 500u);
  EXPECT_NE(text.find("The manager held 1000 bytes"), text.npos) << text;
  EXPECT_NE(text.find("500 bytes were left for new segments"), text.npos) << text;
}

TEST(OutOfMemory, IsNotWhatATraceExpectsButNobodyRecorded) {
  const auto recording = recorded(R"({"op":"memalloc","id":2,"size":3000,"expect":"oom"})"
                                  "\n",
                                  kDevice);
  const trace::Lifetimes lifetimes(recording->trace());

  EXPECT_TRUE(find_ooms(*recording, lifetimes).all.empty());
}

TEST(OutOfMemory, IsFoundWithTheStateBeforeItInRandomRecordings) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto random = random_recording(seed, 300);
    const auto recording = recorded(random.lines);
    const trace::Lifetimes lifetimes(recording->trace());

    const auto report = find_ooms(*recording, lifetimes);

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
        case Written::MemoryKind::memalloc:
          live.push_back(each);
          break;
        case Written::MemoryKind::segment:
          segments.push_back(each);
          break;
        case Written::MemoryKind::free:
          std::erase_if(live, same_id);
          break;
        case Written::MemoryKind::segment_free:
          std::erase_if(segments, same_id);
          break;
        case Written::MemoryKind::reset:
          std::erase_if(live, [&](const Written& other) { return other.context == each.context; });
          break;
        case Written::MemoryKind::oom:
          ASSERT_LT(next, report.all.size());
          EXPECT_EQ(report.all[next].event, i);
          EXPECT_EQ(report.all[next].request, each.size);
          EXPECT_EQ(report.all[next].live, sum(live));
          EXPECT_EQ(report.all[next].live_count, live.size());
          EXPECT_EQ(report.all[next].reserved.value_or(0),
                    sum(segments) < sum(live) ? 0 : sum(segments));
          needed = std::max(needed, sum(live) + each.size);
          ++next;
          break;
        default:
          break;
      }
      needed = std::max(needed, sum(live));
    }
    EXPECT_EQ(next, report.all.size());
    EXPECT_EQ(report.devices.empty() ? 0 : report.devices.begin()->second.needed, needed);
  }
}

}  // namespace
}  // namespace emm::inspect
