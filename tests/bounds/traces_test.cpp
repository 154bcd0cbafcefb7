#include <gtest/gtest.h>

#include <string>

#include "bounds/bounds.hpp"
#include "bounds/greedy.hpp"
#include "bounds/solve.hpp"
#include "bounds/validate.hpp"
#include "dsa_file.hpp"
#include "random_buffers.hpp"

namespace emm::bounds {
namespace {

constexpr std::uint64_t kCapacity = 1'048'576;

class Recorded : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto folder = extra_traces();
    if (folder.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES names no folder of recordings";
    auto read = read_dsa_file(folder + "/dsa/" + GetParam());
    if (!read) GTEST_SKIP() << "no " << GetParam() << " among the recordings";
    buffers_ = std::move(*read);
    ASSERT_FALSE(buffers_.empty());
  }

  std::vector<Buffer> buffers_;
};

class MiniMallocSet : public Recorded {};

TEST_P(MiniMallocSet, FitsInOneMebibyteInAnyOrderOfItsRowsAndWithTimeReversed) {
  Prng random(1);
  const auto plain = solve(buffers_, kCapacity);
  ASSERT_EQ(plain.outcome, Solution::Outcome::placed) << "after " << plain.nodes << " nodes";
  EXPECT_FALSE(first_violation(buffers_, plain.layout, kCapacity));

  for (const auto& buffers : {shuffled(buffers_, random), reversed_in_time(buffers_)}) {
    const auto solution = solve(buffers, kCapacity);

    ASSERT_EQ(solution.outcome, Solution::Outcome::placed);
    EXPECT_EQ(solution.nodes, plain.nodes);
    EXPECT_FALSE(first_violation(buffers, solution.layout, kCapacity));
  }
}

INSTANTIATE_TEST_SUITE_P(AtoK, MiniMallocSet,
                         testing::Values("A.1048576.csv", "B.1048576.csv", "C.1048576.csv",
                                         "D.1048576.csv", "E.1048576.csv", "F.1048576.csv",
                                         "G.1048576.csv", "H.1048576.csv", "I.1048576.csv",
                                         "J.1048576.csv", "K.1048576.csv"),
                         [](const auto& set) { return std::string(set.param, 1); });

/// Sets whose bound cannot be met, which may take a search any time to find out.
class LooseSet : public Recorded {};

TEST_P(LooseSet, NeedsNoMoreThanOneMebibyte) {
  const auto bracket = minimal_capacity(buffers_, 0.01, {.nodes = 60'000});

  EXPECT_LE(bracket.upper, kCapacity);
  EXPECT_FALSE(first_violation(buffers_, bracket.layout, bracket.upper));
}

INSTANTIATE_TEST_SUITE_P(DAndJ, LooseSet, testing::Values("D.1048576.csv", "J.1048576.csv"),
                         [](const auto& trace) { return std::string(trace.param).substr(0, 1); });

class TrainingTrace : public Recorded {};

TEST_P(TrainingTrace, StandsGreedilyWithin35HundredthsOfAPercentOfItsBound) {
  const auto bound = requested_bound(buffers_);

  const auto greedy = place_greedily(buffers_);

  ASSERT_TRUE(greedy);
  EXPECT_LE((greedy->layout.height - bound) * 10'000, bound * 35)
      << greedy->layout.height << " over " << bound;
}

TEST_P(TrainingTrace, HasALeastCapacityBetweenItsBoundAndALayoutThatHolds) {
  const auto bracket = minimal_capacity(buffers_, 0.01);

  EXPECT_EQ(bracket.nodes, 0u) << "greedy is within a hundredth, so that nothing is searched";
  EXPECT_GE(bracket.lower, requested_bound(buffers_));
  EXPECT_LE(bracket.upper - bracket.lower, bracket.lower / 100);
  EXPECT_FALSE(first_violation(buffers_, bracket.layout, bracket.upper));
}

INSTANTIATE_TEST_SUITE_P(Idealloc, TrainingTrace, testing::Values("resnet50.csv", "G_1.csv.gz"),
                         [](const auto& trace) { return std::string(trace.param).substr(0, 3); });

}  // namespace
}  // namespace emm::bounds
