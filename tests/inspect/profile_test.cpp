#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "format/sparkline.hpp"
#include "inspect/description.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

/// What is live after each event, by walking all of them again and again.
struct BruteForce {
  const std::vector<Written>& operations;

  std::map<std::uint64_t, Written> live_after(std::size_t event) const {
    std::map<std::uint64_t, Written> live;
    for (std::size_t i = 0; i <= event; ++i) {
      const auto& each = operations[i];
      switch (each.what) {
        case Written::MemoryKind::memalloc:
        case Written::MemoryKind::memhostalloc:
        case Written::MemoryKind::segment:
          live[each.id] = each;
          break;
        case Written::MemoryKind::free:
        case Written::MemoryKind::segment_free:
          live.erase(each.id);
          break;
        case Written::MemoryKind::reset:
          std::erase_if(live, [&](const auto& item) {
            return item.second.context == each.context &&
                   item.second.what != Written::MemoryKind::segment;
          });
          break;
        default:
          break;
      }
    }
    return live;
  }
  static std::uint64_t bytes(const std::map<std::uint64_t, Written>& live,
                             Written::MemoryKind what) {
    std::uint64_t sum = 0;
    for (const auto& [id, each] : live) sum += each.what == what ? each.size : 0;
    return sum;
  }
  Peak peak(Written::MemoryKind what) const {
    Peak peak;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto live = live_after(i);
      if (bytes(live, what) <= peak.bytes) continue;
      peak.bytes = bytes(live, what);
      peak.event = static_cast<std::uint32_t>(i);
      peak.count = static_cast<std::uint64_t>(std::count_if(
          live.begin(), live.end(), [&](const auto& item) { return item.second.what == what; }));
    }
    return peak;
  }
};

std::map<std::uint64_t, std::uint64_t> as_map(const BySize& groups) {
  std::map<std::uint64_t, std::uint64_t> out;
  for (const auto& group : groups) out[group.key] = group.bytes;
  return out;
}

TEST(Profile, AgreesWithBruteForceOnRandomRecordings) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto random = random_recording(seed, 300);
    const auto recording = recorded(random.lines);
    const trace::Lifetimes lifetimes(recording->trace());
    const BruteForce brute{random.operations};

    const auto found = describe(*recording, lifetimes).profile;

    ASSERT_EQ(found.events, random.operations.size());
    EXPECT_EQ(found.live, brute.peak(Written::MemoryKind::memalloc));
    EXPECT_EQ(found.host, brute.peak(Written::MemoryKind::memhostalloc));
    const auto reserved = brute.peak(Written::MemoryKind::segment);
    ASSERT_EQ(found.backing.has_value(),
              std::any_of(random.operations.begin(), random.operations.end(),
                          [](const auto& w) { return w.what == Written::MemoryKind::segment; }));
    if (found.backing) {
      EXPECT_EQ(found.backing->reserved, reserved);
      EXPECT_EQ(found.backing->live_at_reserved,
                brute.bytes(brute.live_after(reserved.event), Written::MemoryKind::memalloc));
      EXPECT_EQ(found.backing->reserved_at_live,
                brute.bytes(brute.live_after(found.live.event), Written::MemoryKind::segment));
    }

    std::map<std::uint64_t, std::uint64_t> by_size, by_site, leaked_by_size;
    for (const auto& [id, each] : brute.live_after(found.live.event)) {
      if (each.what != Written::MemoryKind::memalloc) continue;
      by_size[each.size] += each.size;
      by_site[each.site] += each.size;
    }
    for (const auto& [id, each] : brute.live_after(random.operations.size() - 1)) {
      if (each.what == Written::MemoryKind::memalloc) leaked_by_size[each.size] += each.size;
    }
    EXPECT_EQ(as_map(found.at_peak.by_size), by_size);
    EXPECT_EQ(as_map(found.leaked.by_size), leaked_by_size);
    std::map<std::uint64_t, std::uint64_t> found_by_site;
    for (const auto& group : found.at_peak.by_site) found_by_site[index(group.key)] = group.bytes;
    EXPECT_EQ(found_by_site, by_site);

    std::uint64_t allocs = 0, bytes = 0, failed = 0;
    std::vector<std::uint64_t> sizes, event_counts;
    for (std::size_t i = 0; i < random.operations.size(); ++i) {
      const auto& each = random.operations[i];
      failed += each.what == Written::MemoryKind::oom ? 1 : 0;
      if (each.what != Written::MemoryKind::memalloc) continue;
      ++allocs;
      bytes += each.size;
      sizes.push_back(each.size);
      for (std::size_t j = i + 1; j < random.operations.size(); ++j) {
        const auto& later = random.operations[j];
        const bool ends =
            (later.what == Written::MemoryKind::free && later.id == each.id) ||
            (later.what == Written::MemoryKind::reset && later.context == each.context);
        if (!ends) continue;
        event_counts.push_back(j - i);
        break;
      }
    }
    std::sort(sizes.begin(), sizes.end());
    std::sort(event_counts.begin(), event_counts.end());
    EXPECT_EQ(found.allocs, allocs);
    EXPECT_EQ(found.bytes, bytes);
    EXPECT_EQ(found.failed, failed);
    EXPECT_EQ(found.sizes.max, sizes.back());
    EXPECT_EQ(found.sizes.p50, sizes[(sizes.size() + 1) / 2 - 1]);
    EXPECT_EQ(found.lifetime_events.count, event_counts.size());
    EXPECT_EQ(found.lifetime_events.p50, event_counts[(event_counts.size() + 1) / 2 - 1]);
    EXPECT_EQ(found.lifetime_events.max, event_counts.back());
    std::uint64_t classed = 0, classed_at_peak = 0;
    for (const auto& each : found.size_classes)
      classed += each.bytes, classed_at_peak += each.at_peak_bytes;
    EXPECT_EQ(classed, bytes);
    EXPECT_EQ(classed_at_peak, found.live.bytes);
  }
}

TEST(Profile, GivesThreadsAndStreamsTheirShares) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"thread":1}
{"op":"memalloc","id":2,"size":50,"thread":2,"stream":"s1"}
{"op":"free","id":1,"thread":2,"stream":"s1"}
{"op":"memalloc","id":3,"size":20,"thread":2}
{"op":"free","id":2,"thread":2,"stream":"s1"}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = describe(*recording, lifetimes).profile;

  ASSERT_EQ(found.threads.size(), 2u);
  EXPECT_EQ(found.threads[0],
            (Share{.events = 1, .allocs = 1, .bytes = 100, .peak_live_bytes = 100}));
  EXPECT_EQ(found.threads[1], (Share{.events = 4,
                                     .allocs = 2,
                                     .bytes = 70,
                                     .frees = 2,
                                     .frees_of_others = 1,
                                     .peak_live_bytes = 70}));
  ASSERT_EQ(found.streams.size(), 2u);
  EXPECT_EQ(found.streams[0],
            (Share{.events = 2, .allocs = 2, .bytes = 120, .peak_live_bytes = 100}));
  EXPECT_EQ(found.streams[1], (Share{.events = 3,
                                     .allocs = 1,
                                     .bytes = 50,
                                     .frees = 2,
                                     .frees_of_others = 1,
                                     .peak_live_bytes = 50}));
}

Percentiles percentiles_of(const std::vector<std::uint64_t>& values) {
  PercentileFinder finder;
  for (const auto value : values) finder.add(value);
  finder.begin_again();
  for (const auto value : values) finder.add_again(value);
  return finder.percentiles();
}

TEST(Profile, PercentilesAreByNearestRank) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 100; i >= 1; --i) values.push_back(10 * i);

  EXPECT_EQ(
      percentiles_of(values),
      (Percentiles{.count = 100, .min = 10, .p50 = 500, .p90 = 900, .p99 = 990, .max = 1000}));
  EXPECT_EQ(percentiles_of({7}),
            (Percentiles{.count = 1, .min = 7, .p50 = 7, .p90 = 7, .p99 = 7, .max = 7}));
}

TEST(Profile, MemoryThatWasThereBeforeIsNoLeakOfTheRecording) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100,"preexisting":true}
{"op":"memalloc","id":2,"size":7}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = describe(*recording, lifetimes).profile;

  EXPECT_EQ(found.leaked.bytes, 7u);
  EXPECT_EQ(found.preexisting_at_end.bytes, 100u);
}

TEST(Profile, WhatIsFreedIsActiveUntilItsFreeCompletes) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":100}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":10}
{"op":"free","layer":"backing","id":1}
{"op":"memalloc","id":3,"size":70}
{"op":"free","id":2}
{"op":"free","id":3}
{"op":"free","layer":"backing","id":3,"result":{"outcome":"error","code":600}}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = describe(*recording, lifetimes).profile;

  EXPECT_EQ(found.live, (Peak{.bytes = 100, .count = 1, .event = 0}));
  EXPECT_EQ(found.active, (Peak{.bytes = 110, .count = 2, .event = 2}));
  EXPECT_EQ(found.pending_at_end, 1u) << "its free failed: the device was not ready";
  EXPECT_EQ(found.pending_bytes_at_end, 70u);
  EXPECT_EQ(found.leaked.count, 0u);
  EXPECT_EQ(found.actions[static_cast<std::size_t>(Action::free_requested)], 3u);
  EXPECT_EQ(found.actions[static_cast<std::size_t>(Action::free_completed)], 2u);
}

TEST(Profile, SegmentsAreCountedAsTheyWereMadeAndReleased) {
  const auto recording = recorded(
      R"({"op":"memalloc","layer":"backing","id":"s1","size":50,"preexisting":true}
{"op":"memalloc","layer":"backing","kind":"physical","id":"s2","size":100,"addr":"0x1000"}
{"op":"memalloc","layer":"backing","kind":"physical","id":"s3","size":100,"addr":"0x1064"}
{"op":"free","layer":"backing","id":"s2"}
{"op":"memalloc","layer":"backing","kind":"physical","id":"s4","size":40,"addr":"0x1000","x-no_row":true}
{"op":"free","layer":"backing","id":"s3","x-no_row":true}
{"op":"free","layer":"backing","id":"s1"}
{"op":"memalloc","id":1,"size":9,"preexisting":true}
{"op":"memalloc","id":2,"size":9,"result":"oom"}
)");
  const trace::Lifetimes lifetimes(recording->trace());

  const auto found = describe(*recording, lifetimes).profile;

  ASSERT_TRUE(found.backing);
  EXPECT_EQ(found.backing->segments_before, 1u);
  EXPECT_EQ(found.backing->segments_made, 2u) << "what is left of a range is not made";
  EXPECT_EQ(found.backing->segments_given_back, 2u) << "one unmap of two ranges, and a segment";
  EXPECT_EQ(found.backing->reserved_at_end, 40u);
  EXPECT_EQ(found.actions, (Actions{0, 0, 0, 0, 1, 2, 1, 1}));
}

TEST(Sparkline, ShowsWhatIsNotNothingAndFillsOnlyTheMost) {
  EXPECT_EQ(format::sparkline({0, 1, 50, 99, 100}, false), " .=#@");
  EXPECT_EQ(format::sparkline({0, 1, 50, 100}, true), " ▁▄█");
  EXPECT_EQ(format::sparkline({0, 0}, true), "  ");
  EXPECT_EQ(format::sparkline({}, true), "");
}

TEST(Profile, KeepsTheMostThatIsLiveInEachPart) {
  const auto recording = recorded(R"({"op":"memalloc","id":1,"size":10}
{"op":"memalloc","id":2,"size":20}
{"op":"free","id":1}
)");

  const auto parts =
      describe(*recording, trace::Lifetimes(recording->trace())).profile.live_over_events;

  EXPECT_EQ(parts, (std::vector<std::uint64_t>{10, 30, 20}));
}

TEST(Profile, SumsUpCategoriesFromTheFirstMomentOn) {
  const auto recording =
      recorded(R"({"op":"memalloc","id":1,"size":10,"preexisting":true,"x-category":"parameter"}
{"op":"memalloc","id":2,"size":5,"preexisting":true,"x-category":"input"}
{"op":"memalloc","id":3,"size":99,"result":"oom","x-category":"gradient"}
{"op":"memalloc","id":4,"size":20,"x-category":"gradient"}
{"op":"x-category","bytes":5,"from":"input","to":"activation"}
{"op":"free","id":4}
{"op":"free","id":2,"x-category":"activation"}
)");

  const auto of = describe(*recording, trace::Lifetimes(recording->trace())).profile;

  const auto expected = [](std::string name, std::uint64_t at_peak, std::uint64_t peak,
                           std::uint32_t event, std::uint64_t at_end,
                           std::vector<std::uint64_t> over) {
    return CategoryUse{std::move(name), at_peak, peak, event, at_end, std::move(over)};
  };
  ASSERT_EQ(of.categories.size(), 4u);
  EXPECT_EQ(of.categories[0], expected("gradient", 20, 20, 3, 0, {0, 0, 20, 0, 0}))
      << "a refused request takes nothing, and a free without a category ends that of its memory";
  EXPECT_EQ(of.categories[1], expected("parameter", 10, 10, 1, 10, {10, 10, 10, 10, 10}))
      << "what existed before exists at one moment";
  EXPECT_EQ(of.categories[2], expected("activation", 5, 5, 3, 0, {0, 0, 5, 5, 0}))
      << "bytes have their new category at once";
  EXPECT_EQ(of.categories[3], expected("input", 0, 5, 1, 0, {5, 5, 0, 0, 0}));
}

}  // namespace
}  // namespace emm::inspect
