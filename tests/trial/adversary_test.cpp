#include "trial/adversary.hpp"

#include <gtest/gtest.h>

#include "lines.hpp"
#include "replay/engine.hpp"

namespace emm::trial {
namespace {

trace::Trace trace_of(const Program& program) {
  trace::Trace trace;
  const auto written = write(program, "program", trace);
  EXPECT_TRUE(written) << describe(written.error());
  return trace;
}

Adversary found(const Setting& setting, const AdversaryOptions& options) {
  auto done = find_adversary(setting, options);
  EXPECT_TRUE(done) << describe(done.error());
  return std::move(*done);
}

AdversaryOptions few() {
  AdversaryOptions options;
  options.trials = 60;
  options.requests = 40;
  options.size_max = 64_MiB;
  options.live_least = 16_MiB;
  options.capacity = 1_GiB;
  return options;
}

TEST(Program, IsWhatItsTraceAsksFor) {
  const Program program{{.size = 100, .lifetime = 1},
                        {.size = 200, .lifetime = 3},
                        {.size = 300, .lifetime = 1},
                        {.size = 400, .lifetime = 2},
                        {.size = 500, .lifetime = 1}};

  const auto trace = trace_of(program);

  EXPECT_EQ(trace.size(), 10u);
  EXPECT_EQ(trace[0].size, 100u);
  EXPECT_EQ(trace[1].op, trace::Op::free) << "of the first, before the second request";
  EXPECT_EQ(program_of(trace), program);
}

TEST(Program, ReleasesAllAtItsEnd) {
  const auto trace = trace_of({{.size = 1, .lifetime = 1000}, {.size = 2, .lifetime = 1000}});

  EXPECT_EQ(trace.size(), 4u);
  EXPECT_EQ(program_of(trace), (Program{{.size = 1, .lifetime = 2}, {.size = 2, .lifetime = 1}}));
}

TEST(Adversary, WastesAsMuchAsItSays) {
  const auto setting = with("cudart");

  const auto adversary = found(setting, few());

  EXPECT_EQ(adversary.trials, 60u);
  EXPECT_FALSE(adversary.failed);
  EXPECT_GE(adversary.ratio, adversary.pattern_ratio);
  EXPECT_LE(adversary.program.size(), 40u);
  EXPECT_FALSE(adversary.begun_from.empty());
  const auto replayed = run(trace_of(adversary.program), setting, kCapacityMost);
  ASSERT_TRUE(replayed);
  EXPECT_EQ(replayed->pass.peak_reserved_bytes, adversary.peak_reserved);
  EXPECT_EQ(replayed->pass.peak_live_bytes, adversary.peak_live);
}

TEST(Adversary, GetsWorseByChanges) {
  auto options = few();
  options.trials = 200;

  const auto adversary = found(with("default"), options);

  EXPECT_GT(adversary.ratio, adversary.pattern_ratio);
  EXPECT_GT(adversary.found_at, options.trials / 4);
}

TEST(Adversary, IsTheSameForTheSameSeed) {
  const auto setting = with("cudart");
  auto options = few();

  const auto one = found(setting, options), same = found(setting, options);
  options.seed = 2;
  const auto other = found(setting, options);

  EXPECT_EQ(one.program, same.program);
  EXPECT_NE(one.program, other.program);
}

TEST(Adversary, IsMeasuredByTheLeastLiveWhereLessIs) {
  auto options = few();
  options.live_least = 1_GiB;
  options.size_max = 1_KiB;

  const auto adversary = found(with("cudart"), options);

  EXPECT_LT(adversary.peak_live, 1_MiB);
  EXPECT_LT(adversary.ratio, 1) << "over 1 GiB, not over some KiB";
}

TEST(Adversary, EndsTheSearchWhereTheManagerFails) {
  const auto adversary = found(with("cudart", {"limiting:max=1MiB"}), few());

  ASSERT_TRUE(adversary.failed);
  EXPECT_EQ(replay::exit_code(*adversary.failed), 1);
  EXPECT_FALSE(adversary.program.empty());
  EXPECT_LT(adversary.trials, 60u);
}

}  // namespace
}  // namespace emm::trial
