#include "inspect/need.hpp"

#include <gtest/gtest.h>

#include "inspect/survey.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

TEST(Need, IsAtLeastThePeakAndBracketedByALayout) {
  for (std::uint64_t seed = 200; seed < 210; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto recording = recorded(random_recording(seed, 300).lines);
    const Lives lives(recording->trace());

    const auto found = needs(lives, ManualClock(), 1);

    ASSERT_EQ(found.size(), 1u);
    const auto& need = found[0];
    EXPECT_EQ(need.requested, survey(*recording, lives).live.bytes);
    EXPECT_LE(need.requested, need.lower);
    EXPECT_LE(need.lower, need.upper);
    EXPECT_LE(need.upper, need.greedy);
    EXPECT_LE(need.requested, need.aligned);
    EXPECT_LE(need.requested, need.per_stream);
  }
}

TEST(Need, OfStreamsThatShareNothingIsTheSumOfTheirPeaks) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1,"stream":"a"}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"free","id":2,"stream":"b"}
)");

  const auto found = needs(Lives(recording->trace()), ManualClock(), 1);

  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].requested, 100u);
  EXPECT_EQ(found[0].aligned, 512u);
  EXPECT_EQ(found[0].per_stream, 170u);
  EXPECT_EQ(found[0].upper, 100u);
}

/// 100 bytes on stream a, then 70 on b, with `between` in between.
std::uint64_t need_of_two_streams(std::string_view between, std::string_view before = "") {
  const auto recording = recorded(std::string(before) + R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1}
)" + std::string(between) + R"({"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"free","id":2,"stream":"b"}
)");
  return bounds(Lives(recording->trace())).at(0).per_stream;
}

TEST(Need, OfStreamsIsLoweredByAnOrderThatTheTraceHolds) {
  EXPECT_EQ(need_of_two_streams(""), 170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"stream_wait","stream":"b","record":1}
)"), 100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"event_sync","record":1}
)"), 100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_sync","stream":"a"}
)"), 100u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"device_sync"}
)"), 100u);
}

TEST(Need, OfStreamsIsNotLoweredByAnOrderOfSomethingElse) {
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"b","record":1}
{"op":"stream_wait","stream":"a","record":1}
)"), 170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"event_record","stream":"a","record":1}
{"op":"stream_wait","stream":"c","record":1}
)"), 170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_sync","stream":"b"}
)"), 170u);
  EXPECT_EQ(need_of_two_streams(R"({"op":"stream_wait","stream":"b","record":1}
)", R"({"op":"event_record","stream":"a","record":1}
)"), 170u) << "the record is of a moment before the end";
}

TEST(Need, OfStreamsIsLoweredByALegacyStreamThatABlockingOneIsOrderedWith) {
  constexpr std::string_view kLegacy = R"({"op":"memalloc","id":1,"size":100}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
)";
  const auto need = [&](const std::string& before) {
    const auto recording = recorded(before + std::string(kLegacy));
    return bounds(Lives(recording->trace())).at(0).per_stream;
  };

  EXPECT_EQ(need("{\"op\":\"stream_create\",\"id\":\"b\"}\n"), 100u);
  EXPECT_EQ(need("{\"op\":\"stream_create\",\"id\":\"b\",\"blocking\":false}\n"), 170u);
  EXPECT_EQ(need(""), 170u) << "what stream it is the trace does not say";
}

TEST(Need, OfStreamsCountsMemoryThatAnotherStreamGaveBackOnBoth) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"stream":"a"}
{"op":"free","id":1,"stream":"b"}
{"op":"memalloc","id":2,"size":70,"stream":"b"}
{"op":"memalloc","id":3,"size":20,"stream":"a"}
{"op":"memalloc","id":4,"size":5,"stream":"c"}
)");

  EXPECT_EQ(bounds(Lives(recording->trace())).at(0).per_stream, 105u);
}

TEST(Need, IsThatOfEachDevice) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"device":0}
{"op":"memalloc","id":2,"size":70,"device":1}
)");

  const auto found = needs(Lives(recording->trace()), ManualClock(), 1);

  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].upper, 100u);
  EXPECT_EQ(found[1].upper, 70u);
}

}  // namespace
}  // namespace emm::inspect
