#include <gtest/gtest.h>

#include "conformance/suite.hpp"

namespace emm::conformance {
namespace {

Subject subject_of(const std::string& spec) {
  auto factory = find_manager(spec);
  EXPECT_TRUE(factory) << describe(factory.error());
  Subject subject{.manager = spec, .factory = *std::move(factory), .promise = promise_of(spec)};
  if (spec.find("profile=numba") != std::string::npos) subject.profile = Profile::numba;
  return subject;
}

class EveryBundledManager : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryBundledManager, FailsNoClause) {
  const auto subject = subject_of(GetParam());

  const auto report = run_suite(subject, {});

  EXPECT_EQ(report.count(Verdict::Kind::fail), 0u) << to_text(report);
  EXPECT_EQ(report.count(Verdict::Kind::inconclusive), 0u) << to_text(report);
  EXPECT_GT(report.count(Verdict::Kind::pass), 30u);
}

INSTANTIATE_TEST_SUITE_P(Managers, EveryBundledManager,
                         ::testing::Values("default", "default:profile=numba", "host-only", "host-only:profile=numba",
                                           "cudart", "cudart:profile=numba", "pool", "pool:profile=numba", "pool:slab=2MiB"));

}  // namespace
}  // namespace emm::conformance
