#include "inspect/gap.hpp"

#include <gtest/gtest.h>

#include "base/text_format.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

/// A segment of 1,000 bytes; 100 are granted for 90 that are requested; another 200 wait from event
/// 3 to event 4.
constexpr std::string_view kEvents =
    R"({"op":"memalloc","layer":"backing","id":"s","size":1000,"addr":"0x1000"}
{"op":"memalloc","id":1,"size":90,"granted":100,"addr":"0x1000"}
{"op":"memalloc","id":2,"size":200,"addr":"0x1100"}
{"op":"free","id":2}
{"op":"free","id":2,"layer":"backing"}
{"op":"free","id":1}
)";

std::uint64_t bytes_of(const Gap& gap, Beyond cause) {
  std::uint64_t sum = 0;
  for (const auto& part : gap.parts) sum += part.cause == cause ? part.bytes : 0;
  return sum;
}

TEST(Gap, IsRoundingWhatWaitsAndWhatIsFree) {
  const auto recording = recorded(std::string(kEvents));
  const trace::Lifetimes lifetimes(recording->trace());

  const auto waits = gap_after(*recording, lifetimes, {}, 3);
  const auto later = gap_after(*recording, lifetimes, {}, 5);

  ASSERT_TRUE(waits);
  EXPECT_EQ(waits->reserved - waits->live, 910u);
  EXPECT_EQ(bytes_of(*waits, Beyond::rounding), 10u);
  EXPECT_EQ(bytes_of(*waits, Beyond::waiting), 200u);
  EXPECT_EQ(bytes_of(*waits, Beyond::free), 700u);
  ASSERT_TRUE(later);
  ASSERT_EQ(later->parts.size(), 1u);
  EXPECT_EQ(bytes_of(*later, Beyond::free), 1000u);
}

TEST(Gap, TellsPoolsAndRemaindersApartWhereAModelKnowsThem) {
  const auto recording = recorded(std::string(kEvents));
  const trace::Lifetimes lifetimes(recording->trace());
  KnownBlocks known{.blocks = std::vector<KnownBlocks::KnownBlock>(3),
                    .stores = std::vector<Beyond>(3, Beyond::free_small)};
  known.blocks[1] = {.bytes = 128, .rounded = 96};

  const auto gap = gap_after(*recording, lifetimes, known, 2);

  ASSERT_TRUE(gap);
  EXPECT_EQ(bytes_of(*gap, Beyond::rounding), 6u);
  EXPECT_EQ(bytes_of(*gap, Beyond::unsplit_remainder), 32u);
  EXPECT_EQ(bytes_of(*gap, Beyond::free_small), 1000u - 128 - 200);
  EXPECT_EQ(gap->parts.front().cause, Beyond::free_small) << "the greatest is first";
}

TEST(Gap, IsOfCallSitesAndDevices) {
  // The block of layer2 reaches from the segment that was taken for layer1 into that for layer2.
  const auto recording = recorded(
      R"({"op":"define","kind":"site","id":1,"frames":["model.py:1 layer1"]}
{"op":"define","kind":"site","id":2,"frames":["model.py:2 layer2"]}
{"op":"memalloc","layer":"backing","id":"a","size":1000,"addr":"0x10000","site":1}
{"op":"memalloc","layer":"backing","id":"b","size":1000,"addr":"0x103e8","site":2}
{"op":"memalloc","layer":"backing","id":"c","size":500,"addr":"0x10000","site":1,"device":1}
{"op":"memalloc","id":1,"size":390,"granted":400,"addr":"0x102bc","site":2}
)");
  const trace::Lifetimes lifetimes(recording->trace());
  const auto& trace = recording->trace();

  const auto gap = gap_after(*recording, lifetimes, {}, 3);

  ASSERT_TRUE(gap);
  std::vector<std::string> parts;
  for (const auto& part : gap->parts)
    parts.push_back(text::format("{} {}", part.bytes, words_of(trace, part, 40, false)));
  EXPECT_EQ(parts, (std::vector<std::string>{
                       "900 free, taken for model.py:2 layer2, device 0",
                       "700 free, taken for model.py:1 layer1, device 0",
                       "500 free, taken for model.py:1 layer1, device 1",
                       "10 rounding: model.py:2 layer2, device 0",
                   }));
}

TEST(Gap, IsNotToldWhereMoreIsLiveThanTheSegmentsHold) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","id":"s","size":10}
{"op":"memalloc","id":1,"size":90}
{"op":"free","id":1}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  EXPECT_TRUE(gap_after(*recording, lifetimes, {}, 0));
  EXPECT_FALSE(gap_after(*recording, lifetimes, {}, 1));
  EXPECT_TRUE(gap_after(*recording, lifetimes, {}, 2));
}

}  // namespace
}  // namespace emm::inspect
