#include "fleet/ranks.hpp"

#include <gtest/gtest.h>

#include "base/text_format.hpp"

namespace emm::fleet {
namespace {

/// A rank that asks for these sizes, all live at its peak.
Rank rank_with(std::string label, const std::vector<std::uint64_t>& sizes, std::uint32_t site = 1) {
  Rank rank;
  rank.read = true;
  rank.file.label = std::move(label);
  std::uint32_t event = 0;
  for (const auto size : sizes) {
    rank.requests.push_back({event++, site, size});
    auto& held = rank.at_peak[{site, size}];
    ++held.count;
    held.bytes += size;
    rank.peak_live += size;
    ++rank.peak_count;
  }
  rank.events = event;
  return rank;
}

TEST(Ranks, TheTightestIsTheOneWithLeastRoom) {
  auto small = rank_with("0", {100, 100});
  auto large = rank_with("1", {100, 300});
  small.limit = 210;
  large.limit = 1000;

  const auto by_room = compare("set", {small, large}, {});

  EXPECT_EQ(by_room.tightest, 0u);
  EXPECT_TRUE(by_room.by_room);
  small.limit.reset();
  EXPECT_EQ(compare("set", {small, large}, {}).tightest, 1u)
      << "where limits are not known, by use";
}

TEST(Ranks, SeveralMayBeAsTight) {
  const auto ranks = [] {
    return std::vector<Rank>{rank_with("0", {100, 50}), rank_with("1", {100, 100}),
                             rank_with("2", {100, 100})};
  };

  const auto found = compare("set", ranks(), {});

  EXPECT_EQ(found.tightest, 1u);
  EXPECT_EQ(found.as_tight, std::vector<std::size_t>{2});
  EXPECT_EQ(found.next, 0u);
  EXPECT_EQ(found.reason_bytes, 50u) << "against those that are not";
  Sites sites(SameSite::line);
  sites.number("site", "site");
  EXPECT_TRUE(to_text(found, sites, {})
                  .starts_with("Ranks 1, 2 are the tightest: they each had 200 B live at most, 50 "
                               "B more than rank 0"));
  auto all = ranks();
  all.erase(all.begin());
  EXPECT_TRUE(to_text(compare("set", std::move(all), {}), sites, {})
                  .starts_with("Ranks 1, 2 are equally tight: they each had 200 B "
                               "live at most.\nAll make the same requests to the end.\n"));
}

TEST(Ranks, WhatAManagerTookForARequestOfItsOwnIsNoFragmentation) {
  std::vector<Rank> ranks{rank_with("0", {100}), rank_with("1", {100})};
  ranks[0].reserved = 100;
  ranks[1].reserved = 190;
  const auto told = [&] {
    Sites sites(SameSite::line);
    sites.number("site", "save.py:3 gather");
    return to_text(compare("set", ranks, {}), sites, {});
  };

  EXPECT_NE(told().find("90 B more than the others' median: it is fragmented."), std::string::npos);
  ranks[1].grown[{1, 80}] = {.count = 1, .bytes = 90};
  EXPECT_NE(
      told().find("it reserved 90 B for 1 request of 80 B from save.py:3 gather: no other rank"),
      std::string::npos);
}

TEST(Ranks, ManyInARowAreARange) {
  std::vector<Rank> ranks;
  for (std::uint64_t number = 0; number < 6; ++number) {
    ranks.push_back(rank_with(text::format("{}", number), {number < 5 ? 100U : 50U}));
    ranks.back().file.number = number;
  }
  Sites sites(SameSite::line);
  sites.number("site", "site");

  EXPECT_TRUE(to_text(compare("set", std::move(ranks), {}), sites, {})
                  .starts_with("Ranks 0 to 4 are the tightest"));
}

TEST(Ranks, ASecondReasonIsToldBesides) {
  std::vector<Rank> ranks{rank_with("0", {100}), rank_with("1", {160})};
  ranks[0].reserved = 110;
  ranks[1].reserved = 210;

  const auto found = compare("set", std::move(ranks), {});

  EXPECT_EQ(found.reason, Reason::live);
  EXPECT_EQ(found.reason_bytes, 60u);
  EXPECT_EQ(found.also, Reason::idle);
  EXPECT_EQ(found.also_bytes, 40u);
}

TEST(Ranks, ASpikeIsMoreInASmallPartAlone) {
  const auto of = [](std::uint64_t once, std::uint64_t each_step) {
    std::vector<std::uint64_t> sizes(6399, 0);
    sizes.push_back(once);
    auto rank = rank_with("0", sizes);
    for (std::size_t part = 0; part < Rank::kParts; ++part)
      rank.begins[part] = static_cast<std::uint32_t>(part * 100);
    rank.course.fill(10);
    for (std::size_t part = 5; part < Rank::kParts; part += 10) rank.course[part] = each_step;
    rank.course[25] = once;
    rank.peak_event = 2550;
    return rank;
  };
  const auto spike_of = [&](const Rank& rank) {
    return compare("set", {of(100, 100), rank, of(100, 100)}, {}).spike;
  };

  const auto found = spike_of(of(200, 100));

  ASSERT_TRUE(found);
  EXPECT_EQ(found->events, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{2500, 2599}}));
  EXPECT_EQ(found->elsewhere, 100u);
  EXPECT_FALSE(spike_of(of(200, 200))) << "as much more at each step";
}

TEST(Ranks, OneThatARequestFailedOnIsTheTightest) {
  auto failed = rank_with("0", {100});
  failed.refused = 1;
  failed.refusal = Refusal{.event = 1, .site = 1, .size = 50, .live = 100};

  const auto found = compare("set", {failed, rank_with("1", {100, 300})}, {});

  EXPECT_EQ(found.tightest, 0u);
}

TEST(Ranks, WhatItsDeviceHoldsOutsideMayBeTheReason) {
  std::vector<Rank> ranks{rank_with("0", {100}), rank_with("1", {100}), rank_with("2", {100})};
  for (auto& rank : ranks) rank.outside = 10;
  ranks[1].outside = 90;

  const auto found = compare("set", std::move(ranks), {});

  EXPECT_EQ(found.tightest, 1u);
  EXPECT_EQ(found.reason, Reason::outside);
  EXPECT_EQ(found.reason_bytes, 80u);
}

TEST(Ranks, WhatItsManagerHoldsIdleMayBeTheReason) {
  std::vector<Rank> ranks{rank_with("0", {100}), rank_with("1", {100})};
  ranks[0].reserved = 120;
  ranks[1].reserved = 190;

  const auto found = compare("set", std::move(ranks), {});

  EXPECT_EQ(found.tightest, 1u);
  EXPECT_EQ(found.reason, Reason::idle);
}

TEST(Ranks, LargerSizesInAsManyAllocationsAreNamed) {
  const auto found =
      compare("set",
              {rank_with("0", {8, 100, 110, 120}), rank_with("1", {8, 200, 210, 220}),
               rank_with("2", {8, 101, 111, 121})},
              {});

  EXPECT_EQ(found.tightest, 1u);
  ASSERT_TRUE(found.larger);
  EXPECT_EQ(found.larger->own_sizes, 3u);
  EXPECT_EQ(found.larger->bytes, 630u);
  EXPECT_EQ(found.larger->others_bytes, 330u);
}

TEST(Ranks, WhatItHasBeyondTheOthersIsCountedBySiteAndSize) {
  const auto found = compare(
      "set", {rank_with("0", {5, 5}), rank_with("1", {5, 5, 5, 5, 7}), rank_with("2", {5, 5})}, {});

  ASSERT_EQ(found.keys.size(), 2u);
  EXPECT_EQ(found.keys[0].size, 5u);
  EXPECT_EQ(found.keys[0].count, 4u);
  EXPECT_EQ(found.keys[0].others_count, 2u);
  EXPECT_EQ(found.keys[1].size, 7u);
  EXPECT_EQ(found.keys[1].others_count, 0u);
  EXPECT_EQ(found.even, 15u) << "a sum of thirds";
}

TEST(Ranks, PartAtTheFirstRequestThatTheOtherDoesNotMake) {
  std::vector<std::uint64_t> first(600), second;
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = 1000 + i;
  second = first;
  std::swap(second[100], second[101]);  // threads that ask in another order
  second[400] = 7;
  first.push_back(1);

  const auto found = compare("set", {rank_with("0", first), rank_with("1", second)}, {});

  ASSERT_TRUE(found.parting);
  EXPECT_EQ(found.parting->alike, 400u);
  EXPECT_EQ(found.parting->here->size, 1400u);
  EXPECT_EQ(found.parting->there->size, 7u);
}

TEST(Ranks, DoNotPartWhereOneRecordingEndsEarlier) {
  std::vector<std::uint64_t> first(600, 5);
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = 1000 + i;
  auto second = first;
  second.resize(300);

  const auto found = compare("set", {rank_with("0", first), rank_with("1", second)}, {});

  EXPECT_FALSE(found.parting);
  EXPECT_TRUE(found.alike.empty());
}

TEST(Ranks, ThatCouldNotBeReadAreLeftOut) {
  Rank damaged;
  damaged.fault = "rank1.json: cut";

  const auto found = compare("set", {rank_with("0", {5}), damaged}, {});

  EXPECT_EQ(found.tightest, 0u);
  EXPECT_FALSE(found.next);
  EXPECT_FALSE(found.is_whole());
}

}  // namespace
}  // namespace emm::fleet
