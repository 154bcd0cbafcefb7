#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/text_format.hpp"
#include "exchange/importer.hpp"
#include "inspect/description.hpp"
#include "inspect/explanation.hpp"
#include "inspect/growth_walk.hpp"
#include "inspect/oom_text.hpp"
#include "inspect/percentiles.hpp"
#include "inspect/profile_text.hpp"
#include "inspect/profile_walk.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"
#include "trace/compact/live_operations.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

using Open = std::function<std::unique_ptr<format::ByteSource>()>;

ReadAgain reading(const Open& open) {
  return [open](trace::OperationSink& sink) -> Status {
    const auto source = open();
    auto summary = trace::read(*source, sink);
    return summary ? Status() : Status(summary.error());
  };
}

/// A map of the middle of the trace.
Result<std::optional<std::uint32_t>> middle(const trace::Trace& trace, const Profile&,
                                            std::optional<std::uint32_t>) {
  if (trace.size() == 0) return std::optional<std::uint32_t>();
  return std::optional(static_cast<std::uint32_t>(trace.size() / 2));
}

/// The whole answer, or "" where it has to be in memory.
std::string in_passes(const Open& open) {
  const auto found = inspect_in_passes("x.jsonl", reading(open), middle);
  if (!found) return describe(found.error());
  if (*found == nullptr) return "";
  const auto& all = **found;
  return to_json(all.trace(), all.profile, all.growth, all.map, std::nullopt, std::nullopt, {}) +
         to_text(all.trace(), all.profile, all.growth, {});
}

std::string from_memory(const Open& open) {
  Recording recording;
  recording.set_source("x.jsonl");
  const auto source = open();
  if (auto read = trace::read(*source, recording); !read) return describe(read.error());
  const auto& trace = recording.trace();
  const trace::Lifetimes lifetimes(trace);
  if (auto summed = lifetimes.can_be_summed(); !summed) return describe(summed.error());
  const auto [of, grown] = describe(recording, lifetimes);
  std::optional<AddressSpace> map;
  if (trace.size() > 0)
    map = address_space_after(recording, lifetimes, static_cast<std::uint32_t>(trace.size() / 2));
  return to_json(trace, of, grown, map, std::nullopt, std::nullopt, {}) +
         to_text(trace, of, grown, {});
}

/// What explain says, of the failures or of a capacity; "" where it has to be in memory.
std::string explained_in_passes(const Open& open, std::optional<std::uint64_t> capacity) {
  const auto found = explain_in_passes("x.jsonl", reading(open), capacity, std::nullopt);
  if (!found) return describe(found.error());
  if (*found == nullptr) return "";
  const auto& all = **found;
  auto out = to_json(all.trace(), all, all.report, 0, all.fit_checks, 10);
  if (!all.report.all.empty()) out += to_text(all.trace(), all, all.report, 0, {});
  return out + to_text(all.trace(), all, all.fit_checks, "x.jsonl", {});
}

std::string explained_from_memory(const Open& open, std::optional<std::uint64_t> capacity) {
  Recording recording;
  recording.set_source("x.jsonl");
  if (auto read = reading(open)(recording); !read) return describe(read.error());
  const trace::Lifetimes lifetimes(recording.trace());
  const auto [report, checks] = explain(recording, lifetimes, capacity);
  auto out = to_json(recording, lifetimes, report, 0, checks, 10);
  if (!report.all.empty()) out += to_text(recording, lifetimes, report, 0, {});
  return out + to_text(recording, lifetimes, checks, "x.jsonl", {});
}

Open lines(std::string lines) {
  auto text = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n" + lines;
  return [text = std::move(text)] { return format::ByteSource::memory(text, "x.jsonl"); };
}

/// Steps of the same sizes, behind `before` requests that are not of any step.
std::string steps(int count, int before) {
  std::string text;
  std::uint64_t id = 0;
  for (int i = 0; i < before; ++i)
    text += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, 7 + 3 * i);
  for (int step = 0; step < count; ++step) {
    const auto first = id + 1;
    for (int i = 0; i < 6; ++i)
      text += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, 512 << i);
    for (auto each = first; each < first + 5; ++each)
      text += text::format("{\"op\":\"free\",\"id\":{}}\n", each);
  }
  return text;
}

TEST(InPasses, MapsWhatStaysOfASegmentWithTheRowThatEndsItInPart) {
  const auto open = lines(
      R"({"op":"memalloc","layer":"backing","kind":"physical","id":"s1","size":6000,"addr":"0x10000"}
{"op":"memalloc","id":1,"size":1000,"addr":"0x10000"}
{"op":"free","layer":"backing","id":"s1"}
{"op":"memalloc","layer":"backing","kind":"physical","id":"s2","size":2000,"addr":"0x10000","x-no_row":true}
{"op":"free","id":1}
)");

  const auto found = in_passes(open);

  EXPECT_EQ(found, from_memory(open));
  EXPECT_NE(found.find("\"map\":{\"event\":2,\"segments\":true,\"bytes\":2000"), found.npos)
      << found;
}

TEST(InPasses, SaysOfEveryTraceOfTheRepositoryWhatMemorySays) {
  std::size_t compared = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(EMM_SOURCE_DIR) / "traces")) {
    const auto path = entry.path().string();
    const bool is_trace = path.find(".json") != path.npos && !path.ends_with("schema.json");
    if (!entry.is_regular_file() || !is_trace) continue;
    SCOPED_TRACE(path);
    const Open open = [&] {
      auto source = format::ByteSource::open(path);
      EMM_ASSERT(source.has_value());
      return *std::move(source);
    };

    const auto found = in_passes(open);

    if (found.empty()) continue;
    EXPECT_EQ(found, from_memory(open));
    EXPECT_EQ(explained_in_passes(open, std::nullopt), explained_from_memory(open, std::nullopt));
    const auto with_capacity = explained_in_passes(open, 3000);
    if (!with_capacity.empty()) {
      EXPECT_EQ(with_capacity, explained_from_memory(open, 3000));
    }
    ++compared;
  }
  EXPECT_GE(compared, 25u);
}

TEST(InPasses, SaysOfRandomRecordingsWhatMemorySays) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto random = random_recording(seed, 100 + 20 * seed);
    std::string kept;
    std::size_t at = 0, event = 0;
    while (at < random.lines.size()) {
      const auto end = random.lines.find('\n', at) + 1;
      const auto line = random.lines.substr(at, end - at);
      at = end;
      const bool is_written =
          line.find("\"define\"") == line.npos && line.find("\"op\":\"x-category\"") == line.npos;
      if (is_written && random.operations[event++].what == Written::MemoryKind::completed) continue;
      kept += line;
    }
    const auto open = lines(kept);

    EXPECT_EQ(in_passes(open), from_memory(open));
    EXPECT_EQ(explained_in_passes(open, std::nullopt), explained_from_memory(open, std::nullopt));
  }
}

TEST(InPasses, ACapacityIsJudgedAsInMemoryWhereThereIsOneStream) {
  const auto open = lines(steps(10, 20));
  for (const std::uint64_t capacity : {0u, 100u, 2000u, 200'000u, 100'000'000u}) {
    SCOPED_TRACE(capacity);
    EXPECT_EQ(explained_in_passes(open, capacity), explained_from_memory(open, capacity));
  }
}

TEST(InPasses, WhatSeveralStreamsNeedIsOnlyKnownInMemory) {
  const auto open = lines(R"({"op":"memalloc","id":1,"size":512,"stream":1}
{"op":"memalloc","id":2,"size":512,"stream":2}
)");

  EXPECT_EQ(explained_in_passes(open, 600), "");
  EXPECT_EQ(explained_in_passes(open, std::nullopt), explained_from_memory(open, std::nullopt));
}

TEST(InPasses, ATraceWhoseFreesCompleteLaterHasToBeInMemory) {
  const auto found = in_passes(lines(R"({"op":"memalloc","id":1,"size":512}
{"op":"free","id":1}
{"op":"free","id":1,"layer":"backing"}
)"));

  EXPECT_EQ(found, "");
}

TEST(InPasses, ATraceThatIsNotInOrderHasToBeInMemory) {
  const auto found = in_passes(lines(R"({"op":"free","id":1,"seq":2}
{"op":"memalloc","id":1,"size":512,"seq":1}
)"));

  EXPECT_EQ(found, "");
}

TEST(InPasses, SizesThatNoSumHoldsAreRefusedAsInMemory) {
  const auto open = lines(R"({"op":"memalloc","id":1,"size":"18446744073709551615"}
{"op":"free","id":1}
{"op":"memalloc","id":2,"size":"18446744073709551615"}
)");

  EXPECT_EQ(in_passes(open), from_memory(open));
  EXPECT_NE(in_passes(open).find("2^64 bytes or more"), std::string::npos) << in_passes(open);
}

TEST(InPasses, MarksAreIterationsAsInMemory) {
  std::string text;
  std::uint64_t id = 0;
  for (int step = 0; step < 7; ++step) {
    text += text::format("{\"op\":\"mark\",\"text\":\"step {}\",\"phase\":\"begin\"}\n", step);
    for (int i = 0; i < 5; ++i)
      text += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id, 512 * (i + step));
    for (int i = 0; i < 4; ++i) text += text::format("{\"op\":\"free\",\"id\":{}}\n", id - i);
    text += text::format("{\"op\":\"mark\",\"text\":\"step {}\",\"phase\":\"end\"}\n", step);
  }
  const auto open = lines(text);

  EXPECT_EQ(in_passes(open), from_memory(open));
  EXPECT_NE(from_memory(open).find("\"by\":\"marks\""), std::string::npos);
}

Growth streamed_growth(const Open& open, std::size_t last_sizes) {
  GrowthWalk first_walk(std::nullopt, last_sizes);
  LiveWalk first("x.jsonl", {&first_walk});
  EXPECT_TRUE(reading(open)(first));
  GrowthDetails details(first_walk, first);
  LiveWalk second("x.jsonl", {&details});
  EXPECT_TRUE(reading(open)(second));
  if (details.prepare_next_walk()) {
    LiveWalk third("x.jsonl", {&details});
    EXPECT_TRUE(reading(open)(third));
  }
  return details.finish();
}

void expect_same(const Growth& found, const Growth& expected) {
  EXPECT_EQ(found.source, expected.source);
  EXPECT_EQ(found.iterations, expected.iterations);
  EXPECT_EQ(found.base, expected.base);
  EXPECT_EQ(found.bytes, expected.bytes);
  EXPECT_EQ(found.steady, expected.steady);
  EXPECT_EQ(found.by_site, expected.by_site);
  EXPECT_EQ(found.by_size, expected.by_size);
}

TEST(InPasses, StepsAreFoundThatReachFurtherBackThanTheSizesThatAreKept) {
  for (const int before : {0, 40, 100, 200, 400}) {
    SCOPED_TRACE(before);
    const auto open = lines(steps(40, before));
    Recording recording;
    ASSERT_TRUE(reading(open)(recording));
    const trace::Lifetimes lifetimes(recording.trace());

    for (const std::size_t kept : {20u, 64u, 100u, 10000u}) {
      SCOPED_TRACE(kept);
      expect_same(streamed_growth(open, kept), growth(lifetimes));
    }
  }
}

/// Gives what is live after the first `count` operations, and then the others.
class FromTheMiddle final : public trace::OperationSink {
 public:
  FromTheMiddle(LiveWalk& to, std::size_t count) : to_(to), count_(count) {
    to.begin_in_the_middle();
  }
  Status on_header(const trace::Header& header) override {
    live_.begin(header);
    return to_.on_header(header);
  }
  Status on_operation(const trace::Operation& operation) override {
    if (count_ == 0) return to_.on_operation(operation);
    live_.add(operation);
    if (--count_ != 0) return {};
    Status given;
    const auto give = [&](const trace::Operation& made) {
      if (given) given = to_.on_operation(made);
    };
    live_.each_site(give);
    live_.each_live(give);
    known = live_.is_known() && !live_.any_completed_later();
    to_.go_on_at(static_cast<std::uint32_t>(live_.events()));
    return given;
  }
  Status finish() override { return to_.finish(); }
  bool known = false;

 private:
  LiveWalk& to_;
  std::size_t count_;
  trace::compact::LiveOperations live_;
};

/// What is live after an event, as text.
std::string moment(const LiveWalk& walk, std::uint32_t event, const MapVisitor& found) {
  auto out = to_text(walk.trace(), event, found.held, {});
  if (!found.map) return out;
  out += to_text(walk.trace(), *found.map, {});
  for (const auto& name : found.map->names) out += name + ' ';
  return out;
}

TEST(InPasses, WhatWasLiveTellsAllThatALookAtALaterEventNeeds) {
  std::size_t looked = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const auto random = random_recording(seed, 300);
    const auto open = lines(random.lines);
    for (const std::size_t from : {10u, 100u, 200u, 250u}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " from " << from);
      const std::uint32_t event = 280;
      MapVisitor whole(event, true), part(event, true);
      LiveWalk all("x.jsonl", {&whole}), some("x.jsonl", {&part});
      FromTheMiddle middle(some, from);
      const bool both = reading(open)(all).has_value() && reading(open)(middle).has_value();
      if (!both || !middle.known)
        continue;  // frees complete later, or of several contexts one ends

      EXPECT_EQ(moment(some, event, part), moment(all, event, whole));
      ++looked;
    }
  }
  EXPECT_GT(looked, 0u);
}

TEST(InPasses, WhatAResetEndsIsNotLiveForALookAtALaterEvent) {
  std::string text = R"({"op":"define","kind":"site","id":"a","frames":["a.py:1 f","b.py:2 g"]})"
                     "\n";
  for (int i = 0; i < 40; ++i) {
    text += text::format(R"({"op":"memalloc","id":"m{}","size":{},"site":"a","addr":"0x{}000"})"
                         "\n"
                         R"({"op":"memalloc","id":"n{}","size":64,"result":"oom"})"
                         "\n",
                         i, 512 + i, i + 1, i);
    if (i % 3 == 1)
      text += text::format(R"({"op":"free","id":"m{}"})"
                           "\n",
                           i - 1);
    if (i == 20)
      text += R"({"op":"reset"})"
              "\n";
  }
  const auto open = lines(text);
  for (std::size_t from = 1; from < 60; ++from) {
    SCOPED_TRACE(from);
    const std::uint32_t event = 60;
    MapVisitor whole(event, true), part(event, true);
    LiveWalk all("x.jsonl", {&whole}), some("x.jsonl", {&part});
    FromTheMiddle middle(some, from);
    const auto read = reading(open)(all), also = reading(open)(middle);
    ASSERT_TRUE(read) << describe(read.error());
    ASSERT_TRUE(also) << describe(also.error());

    EXPECT_TRUE(middle.known);
    EXPECT_EQ(moment(some, event, part), moment(all, event, whole));
    EXPECT_GT(whole.held.count, 0u);
  }
}

TEST(PercentileFinder, HasThePercentilesOfTheNumbers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Prng random(seed);
    std::vector<std::uint64_t> values(1 + random.below(3000));
    for (auto& value : values) value = random.next() >> random.below(64);
    PercentileFinder finder;
    for (const auto value : values) finder.add(value);
    finder.begin_again();
    for (const auto value : values) finder.add_again(value);

    std::sort(values.begin(), values.end());
    const auto rank = [&](std::size_t percent) {
      return values[(values.size() * percent + 99) / 100 - 1];
    };
    const Percentiles expected{.count = values.size(),
                               .min = values.front(),
                               .p50 = rank(50),
                               .p90 = rank(90),
                               .p99 = rank(99),
                               .max = values.back()};
    EXPECT_EQ(finder.percentiles(), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace emm::inspect
