#include "bounds/greedy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bounds/bounds.hpp"
#include "bounds/shelf.hpp"
#include "bounds/sweep.hpp"
#include "bounds/validate.hpp"
#include "random_buffers.hpp"

namespace emm::bounds {
namespace {

TEST(Greedy, LaysDisjointLifetimesOnTheSameBytes) {
  const std::array<Buffer, 2> buffers{
      {{.lower = 0, .upper = 5, .size = 7}, {.lower = 5, .upper = 6, .size = 8}}};

  const auto greedy = place_greedily(buffers);

  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->layout.height, 8u);
}

TEST(Greedy, NeedsNothingForNothing) {
  const std::array<Buffer, 2> buffers{
      {{.lower = 5, .upper = 5, .size = 7}, {.lower = 0, .upper = 6, .size = 0}}};

  EXPECT_EQ(place_greedily({})->layout.height, 0u);
  EXPECT_EQ(place_greedily(buffers)->layout.height, 0u);
}

TEST(Greedy, FindsNoLayoutThatEndsBeyond64Bits) {
  const auto half = std::uint64_t{1} << 63;
  const std::vector<Buffer> two(2, {.lower = 0, .upper = 2, .size = half});
  const std::vector<Buffer> fitting{{.lower = 0, .upper = 2, .size = half},
                                    {.lower = 0, .upper = 2, .size = half - 1}};

  EXPECT_FALSE(place_greedily(two));
  ASSERT_TRUE(place_greedily(fitting));
  EXPECT_EQ(place_greedily(fitting)->layout.height, kTooMany);
}

TEST(Greedy, StaysBetweenTheBoundAndTheSumOfSizesWhateverTheAlignment) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(
        random, {.count = 150, .time_max = 400, .size_max = 9000, .aligned = seed % 2 == 0});

    const auto greedy = place_greedily(buffers, {.work = 400'000});

    ASSERT_TRUE(greedy);
    EXPECT_GE(greedy->layout.height, requested_bound(buffers));
    EXPECT_LE(greedy->layout.height, 150u * 9008u);
    EXPECT_FALSE(first_violation(buffers, greedy->layout, greedy->layout.height));
  }
}

TEST(Greedy, FindsALayoutHoweverManyAreLiveAndHoweverLittleItMayDo) {
  Prng random(3);
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    buffers.push_back(
        {.lower = i, .upper = i + 1 + random.below(20'000), .size = 1 + random.below(4'000)});
  }

  const auto greedy = place_greedily(buffers, {.work = 1});

  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->order, "time");
  EXPECT_LE(greedy->layout.height, requested_bound(buffers) / 10 * 13);
}

TEST(Greedy, PlacesInTimeWithoutOverlapWhateverTheAlignment) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(
        random, {.count = 300, .time_max = 200, .size_max = 900, .aligned = seed % 2 == 0});
    const auto instance = make_instance(buffers);

    const auto offsets = place_in_time(instance);

    ASSERT_TRUE(offsets);
    Layout layout{.offsets = std::vector<std::uint64_t>(buffers.size()), .height = kTooMany};
    for (std::size_t i = 0; i < offsets->size(); ++i) {
      layout.offsets[instance.positions[i]] = (*offsets)[i];
    }
    EXPECT_FALSE(first_violation(buffers, layout, kTooMany));
  }
}

/// What a shelf finds, by looking at all that is placed.
std::optional<std::uint64_t> found_by_looking(
    const Item& item, Shelf::Fit fit, const std::vector<std::pair<Item, std::uint64_t>>& placed) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (const auto& [other, offset] : placed) {
    if (other.first < item.last && item.first < other.last)
      taken.emplace_back(offset, offset + other.size);
  }
  std::sort(taken.begin(), taken.end());
  std::uint64_t top = 0;
  std::uint64_t least_gap = kTooMany;
  std::optional<std::uint64_t> best;
  for (const auto& [begin, end] : taken) {
    const auto offset = align_up(top, item.alignment);
    if (begin > offset && begin - offset >= item.size && begin - top < least_gap &&
        (fit == Shelf::Fit::best || !best)) {
      best = offset;
      least_gap = begin - top;
    }
    top = std::max(top, end);
  }
  return best ? best : align_up(top, item.alignment);
}

TEST(Greedy, LooksForGapsInAShelfOfManyAsOneWhoLooksAtAll) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(
        random, {.count = 700, .time_max = 40 + 300 * (seed % 3), .size_max = 60, .aligned = true});
    const auto instance = make_instance(buffers);
    const auto fit = seed % 2 == 0 ? Shelf::Fit::first : Shelf::Fit::best;
    Shelf shelf(instance.items, instance.sections);
    std::vector<std::pair<Item, std::uint64_t>> placed;
    auto items = instance.items;
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);

    for (const auto& item : items) {
      const auto found = shelf.find(item, fit, kTooMany);

      ASSERT_EQ(found, found_by_looking(item, fit, placed));
      shelf.place(item, *found);
      placed.emplace_back(item, *found);
    }
  }
}

TEST(Greedy, IsAsLowAfterPermutingRowsAndReversingTime) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    const auto buffers = random_buffers(random, {.count = 120, .time_max = 60, .size_max = 700});

    const auto height = place_greedily(buffers, {.work = 400'000})->layout.height;

    EXPECT_EQ(place_greedily(shuffled(buffers, random), {.work = 400'000})->layout.height, height);
    EXPECT_EQ(place_greedily(reversed_in_time(buffers), {.work = 400'000})->layout.height, height);
  }
}

}  // namespace
}  // namespace emm::bounds
