#include "inspect/memory_need.hpp"

#include <gtest/gtest.h>

#include "inspect/description.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

TEST(MemoryNeed, IsAtLeastThePeakAndBracketedByALayout) {
  for (std::uint64_t seed = 200; seed < 210; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto recording = recorded(random_recording(seed, 300).lines);
    const trace::Lifetimes lifetimes(recording->trace());

    const auto found = needs(lifetimes, ManualClock(), 1);

    ASSERT_EQ(found.size(), 1u);
    const auto& need = found[0];
    EXPECT_EQ(bounds(lifetimes, trace::CountedRequests::served).at(0).peak_live,
              describe(*recording, lifetimes).profile.live.bytes);
    EXPECT_GE(need.peak_live, describe(*recording, lifetimes).profile.live.bytes);
    EXPECT_LE(need.peak_live, need.lower);
    EXPECT_LE(need.lower, need.upper);
    EXPECT_LE(need.upper, need.greedy);
    EXPECT_LE(need.peak_live, need.aligned);
    EXPECT_LE(need.peak_live, need.no_wait);
  }
}

TEST(MemoryNeed, OfStreamsThatShareNothingIsTheSumOfTheirPeaks) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1,"stream":"a"}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"free","id":2,"stream":"b"}
)");

  const auto found = needs(trace::Lifetimes(recording->trace()), ManualClock(), 1);

  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peak_live, 100u);
  EXPECT_EQ(found[0].aligned, 512u);
  EXPECT_EQ(found[0].no_wait, 170u);
  EXPECT_EQ(found[0].upper, 100u);
}

/// 100 bytes on stream a, then 70 on b, with `between` in between.
std::uint64_t need_of_two_streams(std::string_view between, std::string_view before = "") {
  const auto recording = recorded(std::string(before) +
                                  R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1}
)" + std::string(between) + R"({"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"free","id":2,"stream":"b"}
)");
  return bounds(trace::Lifetimes(recording->trace())).at(0).no_wait;
}

TEST(MemoryNeed, OfStreamsIsLoweredByAnOrderThatTheTraceHolds) {
  EXPECT_EQ(need_of_two_streams(""), 170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"stream_wait","stream":"b","record":1}
)"),
            100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"event_sync","record":1}
)"),
            100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_sync","stream":"a"}
)"),
            100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"device_sync"}
)"),
            100u);
}

TEST(MemoryNeed, OfStreamsIsNotLoweredByAnOrderOfSomethingElse) {
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"b","record":1}
{"op":"stream_wait","stream":"a","record":1}
)"),
            170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"stream_wait","stream":"c","record":1}
)"),
            170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_sync","stream":"b"}
)"),
            170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_wait","stream":"b","record":1}
)",
                                R"({"op":"event_record","stream":"a","record":1}
)"),
            170u)
      << "the record is of a moment before the end";
}

TEST(MemoryNeed, OfStreamsIsLoweredByALegacyStreamThatABlockingOneIsOrderedWith) {
  constexpr std::string_view kLegacy = R"({"op":"memalloc","id":1,"size":100}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
)";
  const auto need = [&](const std::string& before) {
    const auto recording = recorded(before + std::string(kLegacy));
    return bounds(trace::Lifetimes(recording->trace())).at(0).no_wait;
  };

  EXPECT_EQ(need("{\"op\":\"stream_create\",\"id\":\"b\"}\n"), 100u);
  EXPECT_EQ(need("{\"op\":\"stream_create\",\"id\":\"b\",\"blocking\":false}\n"), 170u);
  EXPECT_EQ(need(""), 170u) << "what stream it is the trace does not say";
}

TEST(MemoryNeed, OfStreamsCountsMemoryThatAnotherStreamGaveBackOnBoth) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1,"stream":"b"}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"memalloc","id":3,"size":20,"stream":"a"}
{"op":"memalloc","id":4,"size":5,"stream":"c"}
)");

  EXPECT_EQ(bounds(trace::Lifetimes(recording->trace())).at(0).no_wait, 105u);
}

TEST(MemoryNeed, CountsARequestThatTheRecordingRefusedAtItsMoment) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100}
{"op":"memalloc","id":2,"size":1000,"result":"oom"}
{"op":"free","id":1}
{"op":"memalloc","id":3,"size":600,"result":"oom"}
{"op":"memalloc","id":4,"size":5000,"expect":"oom"}
{"op":"memalloc","id":5,"size":70,"device":1,"result":"oom"}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto all = needs(lifetimes, ManualClock(), 1);
  const auto served = bounds(lifetimes, trace::CountedRequests::served);

  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].peak_live, 1100u) << "what is to fail is no need, and the refused do not add up";
  EXPECT_EQ(all[0].no_wait, 1100u);
  EXPECT_EQ(all[0].upper, 1100u);
  EXPECT_EQ(all[0].refused, 2u);
  EXPECT_EQ(all[0].allocs, 1u);
  EXPECT_EQ(all[1].peak_live, 70u);
  ASSERT_EQ(served.size(), 1u);
  EXPECT_EQ(served[0].peak_live, 100u);
  EXPECT_EQ(served[0].no_wait, 100u);
  EXPECT_EQ(served[0].refused, 0u);
}

TEST(MemoryNeed, OfARefusedRequestIsOnItsStream) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":70,"stream":"b","result":"oom"}
)");

  const auto found = bounds(trace::Lifetimes(recording->trace()));

  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peak_live, 100u);
  EXPECT_EQ(found[0].no_wait, 170u);
}

TEST(MemoryNeed, OfARefusedRequestThatNoDeviceCouldServeIsAsMuchAsCanBeSaid) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100}
{"op":"memalloc","id":2,"size":"18446744073709551615","result":"oom"}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  ASSERT_TRUE(lifetimes.can_be_summed()) << "nobody held it";
  const auto found = bounds(lifetimes);

  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].peak_live, ~std::uint64_t{0});
  EXPECT_EQ(found[0].no_wait, ~std::uint64_t{0});
}

TEST(MemoryNeed, TellsWhatNobodyGoesBelowFromWhatIsNeededWithoutWaiting) {
  const auto one = recorded("{\"op\":\"memalloc\",\"id\":1,\"size\":100}\n");
  const auto two = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
)");

  const auto of_one = to_text(bounds(trace::Lifetimes(one->trace()))),
             of_two = to_text(bounds(trace::Lifetimes(two->trace())));

  EXPECT_EQ(of_one.find("no-wait"), std::string::npos) << of_one;
  EXPECT_NE(of_two.find("peak live     100 bytes; no manager serves it with less"),
            std::string::npos)
      << of_two;
  EXPECT_NE(of_two.find("no-wait need  170 bytes, of a manager that never waits;"),
            std::string::npos)
      << of_two;
}

TEST(MemoryNeed, IsThatOfEachDevice) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"device":0}
{"op":"memalloc","id":2,"size":70,"device":1}
)");

  const auto found = needs(trace::Lifetimes(recording->trace()), ManualClock(), 1);

  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].upper, 100u);
  EXPECT_EQ(found[1].upper, 70u);
}

}  // namespace
}  // namespace emm::inspect
