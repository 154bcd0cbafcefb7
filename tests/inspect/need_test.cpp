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
