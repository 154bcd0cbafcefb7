#include "replay/address_map.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.hpp"

namespace emm::replay {
namespace {

TEST(AddressMap, TellsWhichRangeIsOverlapped) {
  AddressMap map;
  ASSERT_FALSE(map.insert(1000, 100, 1));
  ASSERT_FALSE(map.insert(1200, 100, 2));

  EXPECT_EQ(map.insert(1099, 1, 3), 1u);
  EXPECT_EQ(map.insert(900, 101, 3), 1u);
  EXPECT_EQ(map.insert(900, 1000, 3), 1u);
  EXPECT_EQ(map.insert(1150, 51, 3), 2u);
  EXPECT_FALSE(map.insert(1100, 100, 3)) << "ranges may touch";
  EXPECT_EQ(map.size(), 3u);
}

TEST(AddressMap, ARangeMayEndWhereAddressesEnd) {
  AddressMap map;
  ASSERT_FALSE(map.insert(~std::uint64_t{0} - 9, 10, 1));

  EXPECT_EQ(map.insert(~std::uint64_t{0}, 1, 2), 1u);
  EXPECT_EQ(map.insert(5, ~std::uint64_t{0}, 2), 1u);
  EXPECT_FALSE(map.insert(0, 5, 2));
}

TEST(AddressMap, AgreesWithAModelOverRandomRanges) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    AddressMap map;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> model;  // begin: end, number
    for (std::uint32_t step = 0; step < 5000; ++step) {
      if (model.empty() || random.below(100) < 60 - 30 * (step / 2500)) {
        const auto begin = random.below(100'000);
        const auto size = random.between(1, 40);
        auto after = model.upper_bound(begin);
        bool overlaps = after != model.end() && after->first < begin + size;
        if (after != model.begin() && std::prev(after)->second.first > begin) overlaps = true;
        const auto found = map.insert(begin, size, step);
        ASSERT_EQ(found.has_value(), overlaps);
        if (!overlaps) model[begin] = {begin + size, step};
      } else {
        auto victim = model.lower_bound(random.below(100'000));
        if (victim == model.end()) victim = model.begin();
        ASSERT_EQ(map.find(victim->first), victim->second.second);
        map.erase(victim->first);
        model.erase(victim);
      }
      ASSERT_EQ(map.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace emm::replay
