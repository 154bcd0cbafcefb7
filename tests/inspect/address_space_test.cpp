#include "inspect/address_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

TEST(AddressSpace, AgreesWithAMapOfEveryByteOnRandomLayouts) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng random(seed);
    constexpr std::uint64_t kSegment = 1000, kFirst = 0x10000;
    std::string lines, afterwards;
    std::vector<std::vector<char>> bytes(4, std::vector<char>(kSegment, 0));  // 1: used, 2: pending
    for (std::uint64_t s = 0; s < bytes.size(); ++s) {
      lines += text::format(
          "{\"op\":\"memalloc\",\"layer\":\"backing\",\"id\":\"s{}\",\"size\":{},\"addr\":\"{}\"}"
          "\n",
          s, kSegment, text::hex(kFirst + 2 * kSegment * s));
    }
    for (unsigned id = 1; id <= 60; ++id) {
      auto& segment = bytes[static_cast<std::size_t>(random.below(bytes.size()))];
      const auto at = random.below(kSegment - 50), size = random.between(1, 50);
      const auto begin = segment.begin() + static_cast<std::ptrdiff_t>(at),
                 end = begin + static_cast<std::ptrdiff_t>(size);
      if (std::any_of(begin, end, [](char c) { return c != 0; })) continue;
      const auto address =
          kFirst + 2 * kSegment * static_cast<std::uint64_t>(&segment - bytes.data()) + at;
      lines += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"addr\":\"{}\"}\n", id,
                            size, text::hex(address));
      const auto fate = random.below(4);
      if (fate < 2) lines += text::format("{\"op\":\"free\",\"id\":{}}\n", id);
      // The second kind's address comes free after everything that is looked at.
      std::fill(begin, end, static_cast<char>(fate == 0 ? 0 : fate == 1 ? 2 : 1));
      const auto completed =
          text::format("{\"op\":\"free\",\"layer\":\"backing\",\"id\":{}}\n", id);
      if (fate == 0) lines += completed;
      if (fate == 1) afterwards += completed;
    }
    const auto recording = recorded(lines + "{\"op\":\"mark\",\"text\":\"here\"}\n" + afterwards);
    const trace::Lifetimes lifetimes(recording->trace());
    std::uint32_t here = 0;
    while (recording->trace()[here].op != trace::Op::mark) ++here;

    const auto space = address_space_after(*recording, lifetimes, here);

    ASSERT_TRUE(space);
    EXPECT_TRUE(space->segments);
    ASSERT_EQ(space->regions.size(), bytes.size());
    for (std::size_t s = 0; s < bytes.size(); ++s) {
      const auto& region = space->regions[s];
      std::uint64_t run = 0, longest = 0;
      for (const char c : bytes[s]) longest = std::max(longest, run = c == 0 ? run + 1 : 0);
      EXPECT_EQ(region.used,
                static_cast<std::uint64_t>(std::count(bytes[s].begin(), bytes[s].end(), 1)));
      EXPECT_EQ(region.pending,
                static_cast<std::uint64_t>(std::count(bytes[s].begin(), bytes[s].end(), 2)));
      EXPECT_EQ(region.free,
                static_cast<std::uint64_t>(std::count(bytes[s].begin(), bytes[s].end(), 0)));
      EXPECT_EQ(region.largest_free, longest);
    }
  }
}

TEST(AddressSpace, WithoutSegmentsIsRunsOfMemoryWithoutWideGaps) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":4096,"addr":"0x100000"}
{"op":"memalloc","id":2,"size":4096,"addr":"0x102000"}
{"op":"memalloc","id":3,"size":512,"addr":"0x10000000"}
{"op":"memalloc","id":4,"size":77}
)");

  const auto space = address_space_after(*recording, trace::Lifetimes(recording->trace()), 3);

  ASSERT_TRUE(space);
  EXPECT_FALSE(space->segments);
  ASSERT_EQ(space->regions.size(), 2u);
  EXPECT_EQ(space->regions[0].size, 0x3000u);
  EXPECT_EQ(space->regions[0].largest_free, 0x1000u);
  EXPECT_EQ(space->regions[1].free, 0u);
  EXPECT_EQ(space->elsewhere_bytes, 77u);
}

TEST(AddressSpace, PiecesThatAreMappedSideBySideAreOneRegion) {
  const auto piece = [](int id, std::uint64_t address) {
    return text::format(
        "{\"op\":\"memalloc\",\"layer\":\"backing\",\"kind\":\"physical\",\"id\":\"s{}\",\"size\":"
        "1000,"
        "\"addr\":\"{}\"}\n",
        id, text::hex(address));
  };
  const auto recording =
      recorded(piece(1, 0x10000) + piece(2, 0x10000 + 1000) + piece(3, 0x10000 + 3000) +
               "{\"op\":\"memalloc\",\"id\":1,\"size\":1500,\"addr\":\"0x10064\"}\n");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto space = address_space_after(*recording, lifetimes, 3);

  ASSERT_TRUE(space);
  ASSERT_EQ(space->regions.size(), 2u);
  EXPECT_EQ(space->regions[0].size, 2000u);
  EXPECT_EQ(space->used, 1500u);
  EXPECT_EQ(space->elsewhere_bytes, 0u);
  EXPECT_EQ(space->largest_free, 1000u);
}

TEST(AddressSpace, HasWhatStaysOfASegmentWithTheRowThatEndsItInPart) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","kind":"physical","id":"s1","size":6000,"addr":"0x10000"}
{"op":"memalloc","id":1,"size":1000,"addr":"0x10000"}
{"op":"free","layer":"backing","id":"s1"}
{"op":"memalloc","layer":"backing","kind":"physical","id":"s2","size":2000,"addr":"0x10000","x-no_row":true}
{"op":"free","id":1}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto space = address_space_after(*recording, lifetimes, 2);

  ASSERT_TRUE(space);
  EXPECT_EQ(space->event, 2u);
  EXPECT_EQ(space->size, 2000u);
  EXPECT_EQ(space->used, 1000u);
  EXPECT_EQ(space->elsewhere, 0u);
}

TEST(AddressSpace, IsNotKnownWhereNoAddressIs) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":4096})"
                                  "\n");

  EXPECT_FALSE(address_space_after(*recording, trace::Lifetimes(recording->trace()), 0));
}

TEST(AddressSpace, BlocksAreAsLargeAsWasGranted) {
  const auto recording =
      recorded(R"({"op":"memalloc","layer":"backing","id":"s1","size":2048,"addr":"0x1000"}
{"op":"memalloc","id":1,"size":100,"granted":512,"addr":"0x1000"}
)");

  const auto space = address_space_after(*recording, trace::Lifetimes(recording->trace()), 1);

  ASSERT_TRUE(space);
  EXPECT_EQ(space->used, 512u);
  EXPECT_EQ(space->free, 1536u);
}

TEST(AddressSpace, ShowsTheLargestRegionsByAddress) {
  AddressSpace space;
  for (const std::uint64_t size : {5u, 2u, 7u, 1u, 7u}) {
    space.regions.push_back(
        {.address = 100 * (space.regions.size() + 1), .size = size, .blocks = {}});
  }

  EXPECT_EQ(largest(space, 3), (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_EQ(largest(space, 9), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace emm::inspect
