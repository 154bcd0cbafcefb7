#include "inspect/picture.hpp"

#include <gtest/gtest.h>

#include "format/svg.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

std::string drawn(const Recording& recording, std::optional<std::uint32_t> map = std::nullopt,
                  std::uint64_t capacity = 0) {
  const trace::Lifetimes lifetimes(recording.trace());
  std::optional<AddressSpace> space;
  if (map) space = address_space_after(recording, lifetimes, *map);
  return picture(recording, lifetimes, describe(recording, lifetimes).profile, growth(lifetimes),
                 space, false, limits_of(recording, lifetimes, capacity));
}

/// Every element is closed, in order.
bool well_formed(std::string_view svg) {
  std::vector<std::string> open;
  for (auto at = svg.find('<'); at != std::string_view::npos; at = svg.find('<', at + 1)) {
    const auto end = svg.find('>', at);
    if (end == std::string_view::npos) return false;
    const auto tag = svg.substr(at + 1, end - at - 1);
    if (tag.ends_with('/')) continue;
    const auto name = std::string(tag.substr(0, tag.find(' ')));
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || "/" + open.back() != name) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Picture, OfRandomRecordingsIsWellFormedAndTheSameEachTime) {
  for (std::uint64_t seed = 300; seed < 310; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto recording = recorded(random_recording(seed, 700).lines);

    const auto svg = drawn(*recording);

    EXPECT_TRUE(well_formed(svg));
    EXPECT_EQ(svg, drawn(*recording));
    EXPECT_NE(svg.find("peak live"), std::string::npos);
  }
}

TEST(Picture, OfATraceWithoutEventsIsOne) { EXPECT_TRUE(well_formed(drawn(*recorded("")))); }

TEST(Picture, ShowsWhatIsWrittenInFramesAsItIs) {
  const auto recording =
      recorded(R"({"op":"define","kind":"site","id":1,"frames":["a.py:1 <module> & \"more\""]}
{"op":"memalloc","id":1,"size":4096,"site":1,"addr":"0x1000"}
)");

  const auto svg = drawn(*recording, 0);

  EXPECT_TRUE(well_formed(svg));
  EXPECT_NE(svg.find("a.py:1 &lt;module&gt; &amp; &quot;more&quot;: 4.00 KiB at the peak"),
            std::string::npos);
  EXPECT_NE(svg.find("0x1000"), std::string::npos);
}

TEST(Picture, ShowsTimesFailuresAndTheCapacity) {
  const auto recording = recorded(
      R"({"op":"memalloc","id":1,"size":800000,"time_ns":5000,"device":0}
{"op":"memalloc","id":2,"size":400000,"time_ns":9000,"device":0,"result":"oom"}
)",
      R"(,"devices":[{"id":0,"capacity":1000000}])");

  const auto svg = drawn(*recording);

  EXPECT_TRUE(well_formed(svg));
  EXPECT_NE(svg.find("event, and its time"), std::string::npos);
  EXPECT_NE(svg.find("event 1: 390.62 KiB were refused"), std::string::npos);
  EXPECT_NE(svg.find("capacity 976.56 KiB"), std::string::npos);
  EXPECT_NE(svg.find("up to 1 MiB: 781.25 KiB at the peak"), std::string::npos);
}

TEST(Picture, DrawsALimitThatRefusedAndACapacityThatIsGiven) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","id":"s","size":800000}
{"op":"memalloc","id":1,"size":700000}
{"op":"memalloc","id":2,"size":400000,"result":"oom","x-device_free":90000000}
)");

  const auto svg = drawn(*recording, std::nullopt, 2'000'000);

  EXPECT_NE(svg.find("a limit of at least 781.25 KiB"), std::string::npos);
  EXPECT_NE(svg.find("capacity 1.91 MiB"), std::string::npos);
  EXPECT_EQ(drawn(*recording, std::nullopt, 90'000'000).find("capacity"), std::string::npos)
      << "a line far above all else would press the curves flat";
}

TEST(Picture, NamesWhatIsFreeAndWhatWaitsInTheMap) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","id":"s","size":800000,"addr":"0x1000"}
{"op":"memalloc","id":1,"size":700,"addr":"0x1000"}
{"op":"free","id":1}
{"op":"free","id":1,"layer":"backing"}
)");

  EXPECT_NE(drawn(*recording, 2).find("in the map: free"), std::string::npos);
  EXPECT_NE(drawn(*recording, 2).find("kept for another stream"), std::string::npos);
  EXPECT_EQ(drawn(*recording, 1).find("kept for another stream"), std::string::npos);
  EXPECT_EQ(drawn(*recording).find("in the map"), std::string::npos);
}

TEST(Picture, StacksCategories) {
  const auto recording = recorded(
      R"({"op":"memalloc","id":1,"size":4194304,"preexisting":true,"x-category":"parameter"}
{"op":"memalloc","id":2,"size":8388608,"x-category":"gradient"}
{"op":"x-category","bytes":8388608,"from":"gradient","to":"temporary"}
{"op":"free","id":2,"x-category":"temporary"}
)");

  const auto svg = drawn(*recording);

  EXPECT_TRUE(well_formed(svg));
  EXPECT_NE(svg.find("temporary: 8.00 MiB at the peak"), std::string::npos) << svg;
  EXPECT_NE(svg.find("parameter: 4.00 MiB at the peak"), std::string::npos);
  EXPECT_EQ(svg.find("up to 4 MiB"), std::string::npos);
  EXPECT_EQ(svg.find("or none"), std::string::npos) << "all memory has a category";
}

TEST(Picture, ShowsLongNamesInSeveralLines) {
  std::string frame = "a.py:1";
  for (int i = 0; i < 40; ++i) frame += " words_" + std::to_string(i);
  const auto recording =
      recorded(R"({"op":"define","kind":"site","id":1,"frames":[")" + frame + R"("]}
{"op":"memalloc","id":1,"size":4096,"site":1}
)");

  const auto svg = drawn(*recording);

  for (int i = 0; i < 40; ++i)
    EXPECT_NE(svg.find("words_" + std::to_string(i)), std::string::npos) << i;
  EXPECT_TRUE(well_formed(svg));
}

TEST(Picture, TicksAreRoundNumbers) {
  EXPECT_EQ(format::binary_ticks(3000),
            (std::vector<std::uint64_t>{0, 512, 1024, 1536, 2048, 2560, 3072}));
  EXPECT_EQ(format::decimal_ticks(778),
            (std::vector<std::uint64_t>{0, 100, 200, 300, 400, 500, 600, 700}));
  EXPECT_EQ(format::decimal_ticks(5), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(format::binary_ticks(0), (std::vector<std::uint64_t>{0}));
}

}  // namespace
}  // namespace emm::inspect
