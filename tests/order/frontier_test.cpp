#include "order/frontier.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.hpp"
#include "order/touched.hpp"

namespace emm::order {
namespace {

TEST(Frontier, KnowsTheFurthestOfEachTimeline) {
  Frontier frontier;

  frontier.raise({7, 3});
  frontier.raise({2, 5});
  frontier.raise({7, 1});

  EXPECT_EQ(frontier.of(7), 3u);
  EXPECT_EQ(frontier.of(2), 5u);
  EXPECT_EQ(frontier.of(3), 0u);
  EXPECT_TRUE(frontier.covers({7, 3}));
  EXPECT_FALSE(frontier.covers({7, 4}));
}

TEST(Frontier, JoinsTimelineByTimeline) {
  Frontier one, other;
  one.raise({1, 9});
  one.raise({2, 1});
  other.raise({2, 4});
  other.raise({3, 2});

  one.join(other);

  EXPECT_EQ(one.of(1), 9u);
  EXPECT_EQ(one.of(2), 4u);
  EXPECT_EQ(one.of(3), 2u);
}

TEST(Touched, CarvesLikeAListOfBytesFromASeed) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    Touched touched;
    std::map<std::uint64_t, std::uint32_t> bytes;
    for (std::uint32_t id = 1; id <= 60; ++id) {
      const auto begin = random.below(200);
      const auto end = begin + random.between(1, 40);
      touched.carve(begin, end, [](const Piece&) { return true; });
      for (auto at = begin; at < end; ++at) bytes.erase(at);
      if (!random.chance(0.6)) continue;
      auto block = std::make_shared<Block>();
      block->id = id;
      touched.add(begin, {.end = end, .block = std::move(block)});
      for (auto at = begin; at < end; ++at) bytes[at] = id;
    }
    for (std::uint64_t at = 0; at < 240; ++at) {
      std::uint32_t found = 0;
      touched.overlapping(at, at + 1, [&](const Piece& piece) { found = piece.block->id; });
      const auto byte = bytes.find(at);
      EXPECT_EQ(found, byte == bytes.end() ? 0 : byte->second) << at;
    }
  }
}

}  // namespace
}  // namespace emm::order
