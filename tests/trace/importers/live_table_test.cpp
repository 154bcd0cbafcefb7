#include "exchange/importers/live_table.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.hpp"

namespace emm::trace {
namespace {

TEST(LiveTable, AnswersAsAMapDoes) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    LiveTable table;
    std::map<std::uint64_t, LiveAllocation> map;
    std::uint64_t bytes = 0;
    for (std::uint64_t step = 1; step <= 40'000; ++step) {
      const auto address = (1 + random.below(700)) * 512;  // few, so that they meet
      if (random.below(2) == 0) {
        const LiveAllocation entry{.id = step, .size = step % 1000};
        const auto added = map.emplace(address, entry).second;
        bytes += added ? entry.size : 0;
        ASSERT_EQ(table.add(address, entry), added);
      } else {
        const auto removed = table.remove(address);
        const auto found = map.find(address);
        ASSERT_EQ(removed.has_value(), found != map.end());
        if (!removed) continue;
        ASSERT_EQ(removed->id, found->second.id);
        bytes -= removed->size;
        map.erase(found);
      }
      ASSERT_EQ(table.count(), map.size());
      ASSERT_EQ(table.bytes().value(), bytes);
    }
  }
}

TEST(LiveTable, TakesAnyAddress) {
  for (const auto address : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    SCOPED_TRACE(address);
    LiveTable table;

    EXPECT_EQ(table.remove(address), std::nullopt);
    EXPECT_TRUE(table.add(address, {.id = 1, .size = 2}));
    EXPECT_FALSE(table.add(address, {.id = 2, .size = 2}));
    EXPECT_EQ(table.remove(1), std::nullopt);
    EXPECT_TRUE(table.has(address));
    EXPECT_EQ(table.count(), 1u);
    EXPECT_EQ(table.remove(address)->id, 1u);
    EXPECT_FALSE(table.has(address));
    EXPECT_EQ(table.count(), 0u);
  }
}

}  // namespace
}  // namespace emm::trace
