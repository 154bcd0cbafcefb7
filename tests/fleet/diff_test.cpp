#include "fleet/diff.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "base/text_format.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::fleet {
namespace {

/// A training as lines of a trace, which changes may be planted in.
struct Training {
  unsigned layers = 6, steps = 8;
  std::uint64_t batch = 4;
  unsigned warm_up = 0;  ///< Steps of a quarter of the batch before the others.
  bool leaks = false, forgets = false, jitters = false;
  bool backward = false;  ///< Gradients, which threads without a call site ask for.
  unsigned moved_by = 0;  ///< lines of the source

  std::string lines() const {
    std::string out;
    unsigned id = 0, sites = 0;
    std::vector<std::string> known;
    const auto site = [&](const std::string& frame) {
      for (unsigned i = 0; i < known.size(); ++i) {
        if (known[i] == frame) return i + 1;
      }
      known.push_back(frame);
      out += text::format("{\"op\":\"define\",\"kind\":\"site\",\"id\":{},\"frames\":[\"{}\"]}\n",
                          ++sites, frame);
      return sites;
    };
    const auto alloc = [&](std::uint64_t size, const std::string& file, unsigned line,
                           const std::string& function) {
      const auto at = site(text::format("{}:{} {}", file, line + moved_by, function));
      out +=
          text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"site\":{}}\n", ++id, size, at);
      return id;
    };
    const auto free = [&](unsigned which) {
      out += text::format("{\"op\":\"free\",\"id\":{}}\n", which);
    };
    for (unsigned i = 0; i < layers; ++i) alloc(4096, "model.py", 10, "__init__");
    const auto whole = this->batch;
    for (unsigned step = 0; step < warm_up + steps; ++step) {
      const auto batch = step < warm_up ? whole / 4 : whole;
      std::vector<unsigned> live{alloc(batch * 512, "data.py", 5, "load")};
      for (unsigned i = 0; i < layers; ++i) {
        const bool swap = jitters && (step + i) % 3 == 0;
        const auto forward = [&] {
          live.push_back(alloc(batch * 2048, "model.py", 20, "forward"));
        };
        if (!swap) forward();
        live.push_back(alloc(batch * 1024, "model.py", 30, "attend"));
        if (swap) forward();
        alloc(64, "model.py", 35, "scale");
        free(id);
      }
      for (unsigned i = 0; backward && i < layers; ++i) {
        out += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}}\n", ++id,
                            batch * (512 + i % 2 * 512));
        live.push_back(id);
      }
      const auto loss = alloc(256, "train.py", 40, "loss");
      if (!forgets) free(loss);
      if (leaks) alloc(1024, "metrics.py", 12, "remember");
      for (auto each = live.rbegin(); each != live.rend(); ++each) free(*each);
    }
    return out;
  }
};

Diff between(const Training& before, const Training& after) {
  Sites sites(SameSite::function);
  const auto run = [&](const Training& training) {
    const auto text = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n" + training.lines();
    const auto source = format::ByteSource::memory(text, "x.jsonl");
    inspect::Recording recording;
    EXPECT_TRUE(trace::read(*source, recording));
    return run_of(recording, sites);
  };
  auto a = run(before);
  return diff(std::move(a), run(after));
}

TEST(Diff, OfARunAndItselfIsNothing) { EXPECT_TRUE(between({}, {}).is_nothing()); }

TEST(Diff, LinesThatMovedAreNoDifference) {
  EXPECT_TRUE(between({}, {.moved_by = 7}).is_nothing());
}

TEST(Diff, ThreadsThatAskInAnotherOrderAreNoDifference) {
  const auto found = between({}, {.jitters = true});

  EXPECT_TRUE(found.findings.empty());
}

TEST(Diff, ALeakOfOneTensorAStepIsNamed) {
  const auto found = between({}, {.leaks = true});

  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].change, Change::kept);
  EXPECT_EQ(found.findings[0].bytes, 8 * 1024);
  ASSERT_EQ(found.findings[0].sites.size(), 1u);
  EXPECT_EQ(found.findings[0].sites[0].count_b, 8u);
  EXPECT_EQ(found.findings[0].sites[0].a_step, 1u);
}

TEST(Diff, MoreStepsAreOneStretch) {
  const auto found = between({}, {.steps = 16});

  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].change, Change::inserted);
  EXPECT_EQ(found.findings[0].count, 8u * (1 + 3 * 6 + 1));
  EXPECT_TRUE(found.findings[0].at_end);
  EXPECT_EQ(found.findings[0].bytes, 0);
  const auto fewer = between({.steps = 16}, {});
  ASSERT_EQ(fewer.findings.size(), 1u);
  EXPECT_EQ(fewer.findings[0].change, Change::removed);
}

TEST(Diff, AWarmUpOfSmallerBatchesIsOneStretch) {
  const auto found = between({.backward = true}, {.warm_up = 4, .backward = true});

  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].change, Change::inserted);
  EXPECT_FALSE(found.findings[0].at_end);
  EXPECT_EQ(found.findings[0].bytes, 0);
}

TEST(Diff, ALeakInALongerRunIsNamedBesides) {
  const auto found = between({}, {.steps = 16, .leaks = true});

  ASSERT_EQ(found.findings.size(), 2u);
  EXPECT_EQ(found.findings[0].change, Change::kept);
  EXPECT_EQ(found.findings[0].sites[0].count_b, 16u);
  EXPECT_EQ(found.findings[1].change, Change::inserted);
}

TEST(Diff, GradientsOfALargerBatchAreLargerToo) {
  const auto found = between({.backward = true}, {.batch = 8, .backward = true});

  ASSERT_EQ(found.findings.size(), 2u);
  for (const auto& finding : found.findings) {
    EXPECT_EQ(finding.change, Change::larger);
    EXPECT_DOUBLE_EQ(finding.times, 2);
  }
}

TEST(Diff, ATensorThatIsNoLongerFreedIsNamed) {
  const auto found = between({}, {.forgets = true});

  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].change, Change::kept);
  EXPECT_EQ(found.findings[0].bytes, 8 * 256);
}

TEST(Diff, ABatchThatIsTwiceAsLargeIsNamed) {
  const auto found = between({}, {.batch = 8});

  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].change, Change::larger);
  EXPECT_DOUBLE_EQ(found.findings[0].times, 2);
  EXPECT_EQ(found.findings[0].sites.size(), 3u);
  EXPECT_EQ(static_cast<std::uint64_t>(found.findings[0].bytes),
            found.b.peak_live - found.a.peak_live);
}

TEST(Diff, OneMoreLayerIsNamed) {
  const auto found = between({}, {.layers = 7});

  ASSERT_FALSE(found.findings.empty());
  EXPECT_EQ(found.findings[0].change, Change::more);
  EXPECT_NEAR(found.findings[0].times, 7.0 / 6, 0.001);
  EXPECT_EQ(found.findings[0].sites.size(), 4u);
}

TEST(Diff, ALeakAndALargerBatchAreTwoFindings) {
  const auto found = between({}, {.batch = 8, .leaks = true});

  ASSERT_EQ(found.findings.size(), 2u);
  EXPECT_EQ(found.findings[0].change, Change::larger);
  EXPECT_EQ(found.findings[1].change, Change::kept);
}

TEST(Diff, AConditionIsJudgedAgainstTheRunBefore) {
  const auto found = between({}, {.leaks = true});
  const auto holds = [&](const std::string& words) {
    const auto condition = Condition::parse(words, diff_measures());
    EXPECT_TRUE(condition);
    return failure(*condition, found).has_value();
  };

  EXPECT_TRUE(holds("peak > 1.01x"));
  EXPECT_FALSE(holds("peak > 2x"));
  EXPECT_TRUE(holds("live_at_end >= 8KiB"));
  EXPECT_TRUE(holds("changes > 0"));
}

}  // namespace
}  // namespace emm::fleet
