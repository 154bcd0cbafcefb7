#include "trial/minimize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/prng.hpp"
#include "format/byte_sink.hpp"
#include "fragile_manager.hpp"
#include "lines.hpp"
#include "replay/engine.hpp"
#include "trace/lifetimes.hpp"
#include "trace/writer.hpp"
#include "trial/fit.hpp"
#include "trial/rewrite.hpp"

namespace emm::trial {
namespace {

Examiner::Options examining(std::string_view fails_with, const Setting& setting,
                            std::uint64_t capacity) {
  auto symptom = Symptom::parse(fails_with);
  EXPECT_TRUE(symptom) << describe(symptom.error());
  return {.symptom = *symptom,
          .setting = setting,
          .capacity = capacity,
          .against = {},
          .code_of = [](const Error&) { return 3; }};
}

Reduction minimized(const trace::Trace& trace, const Examiner::Options& options) {
  Examiner examiner(options);
  auto reduction = minimize(trace, examiner, {});
  EXPECT_TRUE(reduction) << describe(reduction.error());
  return std::move(*reduction);
}

/// The smaller trace as a file holds it.
std::string written(const Lines& lines, const trace::Trace& trace, const Draft& draft,
                    std::optional<std::uint32_t> target = {}) {
  std::string text;
  const auto sink = format::ByteSink::to_string(text);
  const auto writer = trace::make_writer(*sink, trace::Form::lines);
  const auto done = rewrite({.trace = trace,
                             .draft = draft,
                             .read = [&](trace::OperationSink& to) { return lines.read(to); },
                             .target = target,
                             .note = "{}",
                             .capacity = 0},
                            *writer);
  EXPECT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(sink->close());
  return text;
}
trace::Trace read_back(const std::string& text) {
  trace::Trace trace;
  const auto source = format::ByteSource::memory(text, "small.jsonl");
  const auto read = trace::read(*source, trace);
  EXPECT_TRUE(read) << describe(read.error()) << text;
  return trace;
}

std::vector<std::string> ids(const trace::Trace& trace) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].op == trace::Op::memalloc) ids.push_back(trace.name(trace[i].id));
  }
  return ids;
}

std::uint64_t peak_live(const trace::Trace& trace) {
  std::uint64_t live = 0, peak = 0;
  const trace::Lifetimes lifetimes(trace);
  lifetimes.walk(
      [&](std::uint32_t, AllocId id) { peak = std::max(peak, live += lifetimes[id].size); },
      [&](std::uint32_t, AllocId id) { live -= lifetimes[id].size; }, [](std::uint32_t) {});
  return peak;
}

/// Streams, threads, guards, host memory, and a slowly growing use of device memory.
std::string random_lines(std::uint64_t seed, std::size_t count) {
  Prng random(seed);
  std::string lines;
  std::vector<std::string> live;
  unsigned guards = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto where = text::format(",\"stream\":\"{}\",\"thread\":{}",
                                    random.chance(0.7) ? "legacy" : "s1", random.below(2));
    const auto dice = random.below(100);
    if (dice < 4) {
      lines += "{\"op\":\"mark\",\"text\":\"step\"}\n";
    } else if (dice < 7) {
      lines += text::format("{\"op\":\"memhostalloc\",\"id\":\"h{}\",\"size\":{}}\n", i,
                            1 + random.below(100'000));
    } else if (dice < 9) {
      lines += "{\"op\":\"defer_cleanup\"}\n";
      ++guards;
    } else if (dice < 12 && guards > 0) {
      lines += "{\"op\":\"end_defer_cleanup\"}\n";
      --guards;
    } else if (dice < 52 && live.size() > 3) {
      const auto at = random.below(live.size());
      lines += text::format("{\"op\":\"free\",\"id\":\"{}\"{}}\n", live[at], where);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      live.push_back(text::format("a{}", i));
      lines += alloc(live.back(), random.log_uniform(512, 64_MiB), where);
    }
  }
  return lines;
}

TEST(Minimize, KeepsTheRequestThatFailsAndWhatItCannotDoWithout) {
  const Lines lines(alloc("a", 8_MiB) + alloc("small", 512) + free("a") + alloc("b", 10_MiB) +
                    alloc("c", 12_MiB) + alloc("after", 2_MiB) + free("b"));
  const auto trace = lines.trace();

  const auto reduction = minimized(trace, examining("oom", with("cudart"), 20_MiB));

  ASSERT_TRUE(reduction.shown);
  EXPECT_FALSE(reduction.interrupted);
  const auto small = read_back(written(lines, trace, reduction.draft));
  EXPECT_EQ(ids(small), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(small.size(), 2u);
  EXPECT_EQ(small[1].size, 12_MiB) << "the request that fails is as it was";
}

TEST(Minimize, MergesWhatBeginsAndEndsSideBySideAndSaysSo) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += alloc(text::format("w{}", i), 4_MiB);
  const Lines lines(text + alloc("last", 4_MiB));
  const auto trace = lines.trace();

  const auto reduction = minimized(trace, examining("oom", with("cudart"), 34_MiB));
  const auto small = written(lines, trace, reduction.draft);

  EXPECT_EQ(read_back(small).size(), 2u);
  EXPECT_NE(small.find("\"x-recorded_size\":33554432,\"x-stands_for\":8}"), std::string::npos)
      << small;
  EXPECT_NE(small.find("{\"op\":\"end\",\"events\":2,\"live\":2,\"live_bytes\":"),
            std::string::npos)
      << small;
}

TEST(Minimize, ARecordedRefusalIsTheFailureThatIsKept) {
  const Lines lines(alloc("a", 8_MiB) + free("a") + alloc("b", 10_MiB) +
                    alloc("c", 12_MiB, ",\"result\":\"oom\"") + alloc("d", 2_MiB));
  const auto trace = lines.trace();
  auto setting = with("cudart");
  setting.refusals_fail = true;

  const auto reduction = minimized(trace, examining("oom", setting, 20_MiB));

  ASSERT_TRUE(reduction.shown);
  EXPECT_EQ(reduction.target, 3u);
  const auto text = written(lines, trace, reduction.draft, reduction.target);
  const auto small = read_back(text);
  EXPECT_EQ(ids(small), (std::vector<std::string>{"b", "c"}));
  EXPECT_NE(text.find("\"live\":2,\"live_bytes\":"), std::string::npos) << text;
  const auto replayed = run(small, with("cudart"), 20_MiB);
  ASSERT_TRUE(replayed && replayed->first_failure);
  EXPECT_EQ(replay::exit_code(*replayed), 1)
      << "what was recorded is no excuse in the smaller trace";
  EXPECT_EQ(replayed->first_failure->id, "c");
}

TEST(Minimize, WhatIsExpectedToFailIsNoFailure) {
  const Lines lines(alloc("b", 10_MiB) + alloc("c", 12_MiB, ",\"expect\":\"oom\""));
  auto setting = with("cudart");
  setting.refusals_fail = true;

  EXPECT_FALSE(minimized(lines.trace(), examining("oom", setting, 20_MiB)).shown);
}

TEST(Minimize, ATraceThatDoesNotFailSoIsLeftAlone) {
  const auto trace = Lines(alloc("a", 8_MiB)).trace();

  const auto reduction = minimized(trace, examining("oom", with("cudart"), 20_MiB));

  EXPECT_FALSE(reduction.shown);
  EXPECT_EQ(reduction.trials, 1u);
}

TEST(Minimize, RandomTracesFailInTheSameWayWithLess) {
#ifdef EMM_ADDRESS_SANITIZER
  constexpr std::uint64_t kSeeds = 3;
#else
  constexpr std::uint64_t kSeeds = 12;
#endif
  for (const auto* manager : {"default", "pool", "cudart"}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(text::format("{}, seed {}", manager, seed));
      const Lines lines(random_lines(seed, 150));
      const auto trace = lines.trace();
      const auto setting = with(manager);
      const auto fits = fit(trace, setting, {});
      ASSERT_TRUE(fits && fits->answer.capacity);
      const auto options =
          examining("oom", setting, *fits->answer.least_passing() / 100 * (70 + seed * 2));

      const auto reduction = minimized(trace, options);
      const auto again = minimized(trace, options);

      ASSERT_TRUE(reduction.shown);
      EXPECT_EQ(reduction.draft, again.draft) << "the same arguments give the same draft";
      const auto small = read_back(written(lines, trace, reduction.draft));
      const auto found = Examiner(options).examine(small);
      ASSERT_TRUE(found);
      ASSERT_TRUE(found->shown) << "what was written fails so when it is read again";
      EXPECT_EQ(found->failure->op, reduction.before.failure->op);
      EXPECT_EQ(found->failure->id, reduction.before.failure->id) << "the same request fails";
      EXPECT_EQ(found->failure->size, reduction.before.failure->size);
      EXPECT_EQ(found->failure->event, small.size() - 1) << "nothing follows it";
      EXPECT_LE(peak_live(small), peak_live(trace));
      EXPECT_LT(small.size(), trace.size() / 2);

      // Each event is one of the original's, in its order; each size no more than those it stands
      // for.
      std::uint32_t last = 0;
      for (const auto& step : reduction.draft.steps) {
        EXPECT_TRUE(last == 0 || step.event > last);
        last = step.event;
        EXPECT_LE(step.size, step.whole);
        if (step.stands_for == 1) {
          EXPECT_EQ(step.whole, trace[step.event].size);
        }
      }
    }
  }
}

TEST(Minimize, AnInterruptLeavesATraceThatFailsSo) {
  const Lines lines(random_lines(7, 300));
  const auto trace = lines.trace();
  const auto fits = fit(trace, with("pool"), {});
  ASSERT_TRUE(fits && fits->answer.capacity);
  auto options = examining("oom", with("pool"), *fits->answer.capacity / 2);
  std::size_t least = 0;
  for (const unsigned after : {1u, 3u, 10u}) {
    std::atomic<bool> interrupted{false};
    options.setting.interrupted = &interrupted;
    Examiner examiner(options);
    unsigned trials = 0;

    const auto reduction = minimize(
        trace, examiner, {.progress = [&](std::uint64_t) { interrupted = ++trials == after; }});

    ASSERT_TRUE(reduction);
    EXPECT_TRUE(reduction->interrupted);
    const auto small = read_back(written(lines, trace, reduction->draft));
    auto uninterrupted = options;
    uninterrupted.setting.interrupted = nullptr;
    const auto found = Examiner(uninterrupted).examine(small);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->shown);
    EXPECT_TRUE(least == 0 || small.size() <= least) << "later interrupts find smaller traces";
    least = small.size();
  }
}

TEST(Minimize, AnExitCodeIsKept) {
  const Lines lines(alloc("a", 8_MiB) + alloc("b", 0, ",\"expect\":\"ok\"") + alloc("c", 8_MiB));
  const auto trace = lines.trace();

  const auto reduction = minimized(trace, examining("exit:1", with("default"), 1_GiB));

  ASSERT_TRUE(reduction.shown);
  EXPECT_EQ(ids(read_back(written(lines, trace, reduction.draft))), std::vector<std::string>{"b"});
}

TEST(Minimize, AManagerThatDiesDoesSoInAProcessOfItsOwn) {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text +=
        text::format("{\"op\":\"memhostalloc\",\"id\":{},\"size\":{}}\n", i, i == 15 ? 7 : 4096);
  }
  const Lines lines(text);
  const auto trace = lines.trace();
  const Setting setting{.manager = fragile_manager()};

  const auto reduction = minimized(trace, examining("exit:137", setting, 1_GiB));

  ASSERT_TRUE(reduction.shown);
  const auto small = read_back(written(lines, trace, reduction.draft));
  ASSERT_LE(small.size(), 3u) << "two others, or one that stands for two";
  EXPECT_EQ(small[small.size() - 1].size, 7u);
}

TEST(Minimize, AManagerThatNeedsMoreGoesOnNeedingIt) {
  const Lines lines(alloc("a", 12_MiB) + alloc("noise", 4096) + free("noise") + free("a") +
                    alloc("more", 4096) + free("more") + alloc("b", 13_MiB) + free("b"));
  const auto trace = lines.trace();
  auto options = examining("more:50", with("pool:initial=30MiB"), 1_GiB);
  options.against = with("cudart").manager;

  const auto reduction = minimized(trace, options);

  ASSERT_TRUE(reduction.shown);
  EXPECT_EQ(reduction.before.reserved, 30_MiB);
  EXPECT_EQ(reduction.before.reserved_by_other, 14_MiB);
  EXPECT_GE(reduction.after.reserved_by_other, 7_MiB) << "half of what it was";
  EXPECT_GE(reduction.after.reserved, reduction.after.reserved_by_other * 3 / 2);
  EXPECT_LT(reduction.draft.steps.size(), trace.size() / 2);
}

TEST(Minimize, WhatIsSaidOfTheEventsThatAreLeftIsKept) {
  // In the order of seq, which is not that of the file.
  const Lines lines(
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":1,\"frames\":[\"a.py:1 f\"]}\n"
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":2,\"frames\":[\"a.py:2 g\"]}\n"
      "{\"op\":\"memalloc\",\"seq\":5,\"id\":\"late\",\"size\":12582912,\"site\":1,\"label\":\"x\","
      "\"x-mine\":[1]}\n"
      "{\"op\":\"memalloc\",\"seq\":1,\"id\":\"gone\",\"size\":4096,\"site\":2}\n"
      "{\"op\":\"free\",\"seq\":2,\"id\":\"gone\"}\n"
      "{\"op\":\"memalloc\",\"seq\":3,\"id\":\"first\",\"size\":12583912,\"x-mine\":{\"b\":2}}\n");
  const auto trace = lines.trace();

  const auto reduction = minimized(trace, examining("oom", with("cudart"), 20_MiB));
  const auto small = written(lines, trace, reduction.draft);

  EXPECT_EQ(
      small.substr(small.find('\n') + 1),
      "{\"op\":\"define\",\"kind\":\"site\",\"id\":1,\"frames\":[\"a.py:1 f\"]}\n"
      "{\"op\":\"memalloc\",\"seq\":5,\"id\":\"late\",\"size\":12582912,\"site\":1,\"label\":\"x\","
      "\"x-mine\":[1]}\n"
      "{\"op\":\"memalloc\",\"seq\":3,\"id\":\"first\",\"size\":12582912,\"x-mine\":{\"b\":2},"
      "\"x-recorded_size\":12583912}\n"
      "{\"op\":\"end\",\"events\":3,\"live\":2,\"live_bytes\":25165824}\n");
}

TEST(Minimize, ARecordedTrainingRunComesDownToOneEventInAHundred) {
  const auto source =
      format::ByteSource::open(EMM_SOURCE_DIR "/traces/torch/torch_gpt2_train_varlen.jsonl.gz");
  ASSERT_TRUE(source);
  trace::Trace trace;
  ASSERT_TRUE(trace::read(**source, trace));
  constexpr std::uint64_t kSmallest = 6'748'635'136;  // as `emmctl fit` says

  const auto reduction = minimized(trace, examining("oom", with("cudart"), kSmallest / 100 * 95));

  ASSERT_TRUE(reduction.shown);
  EXPECT_LE(reduction.draft.steps.size(), trace.size() / 100);
}

TEST(Symptom, IsParsedOrRefused) {
  EXPECT_EQ(Symptom::parse("oom")->kind, Symptom::Kind::oom);
  EXPECT_EQ(Symptom::parse("exit:139")->code, 139);
  EXPECT_EQ(Symptom::parse("more:12.5%")->percent, 12.5);
  for (const auto* words : {"", "ooms", "exit", "exit:0", "exit:256", "exit:x", "more:", "more:-1",
                            "more:0", "oom:1"}) {
    EXPECT_FALSE(Symptom::parse(words)) << words;
  }
}

}  // namespace
}  // namespace emm::trial
