#include "stream_order/vector_clock.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.hpp"
#include "stream_order/shadow_memory.hpp"

namespace emm::stream_order {
namespace {

TEST(VectorClock, KnowsTheFurthestOfEachTimeline) {
  VectorClock clock;

  clock.raise({7, 3});
  clock.raise({2, 5});
  clock.raise({7, 1});

  EXPECT_EQ(clock.of(7), 3u);
  EXPECT_EQ(clock.of(2), 5u);
  EXPECT_EQ(clock.of(3), 0u);
  EXPECT_TRUE(clock.covers({7, 3}));
  EXPECT_FALSE(clock.covers({7, 4}));
}

TEST(VectorClock, JoinsTimelineByTimeline) {
  VectorClock one, other;
  one.raise({1, 9});
  one.raise({2, 1});
  other.raise({2, 4});
  other.raise({3, 2});

  one.join(other);

  EXPECT_EQ(one.of(1), 9u);
  EXPECT_EQ(one.of(2), 4u);
  EXPECT_EQ(one.of(3), 2u);
}

TEST(ShadowMemory, ErasesLikeAListOfBytesFromASeed) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    ShadowMemory shadow;
    std::map<std::uint64_t, std::uint32_t> bytes;
    for (std::uint32_t id = 1; id <= 60; ++id) {
      const auto begin = random.below(200);
      const auto end = begin + random.between(1, 40);
      shadow.erase(begin, end, [](const ShadowRange&) { return true; });
      for (auto at = begin; at < end; ++at) bytes.erase(at);
      if (!random.chance(0.6)) continue;
      auto allocation = std::make_shared<TracedAllocation>();
      allocation->id = id;
      shadow.add(begin, {.end = end, .allocation = std::move(allocation)});
      for (auto at = begin; at < end; ++at) bytes[at] = id;
    }
    for (std::uint64_t at = 0; at < 240; ++at) {
      std::uint32_t found = 0;
      shadow.overlapping(at, at + 1,
                         [&](const ShadowRange& range) { found = range.allocation->id; });
      const auto byte = bytes.find(at);
      EXPECT_EQ(found, byte == bytes.end() ? 0 : byte->second) << at;
    }
  }
}

}  // namespace
}  // namespace emm::stream_order
