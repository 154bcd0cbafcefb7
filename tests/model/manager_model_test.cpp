#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string_view>

#include "base/text.hpp"
#include "conformance/model/comparison.hpp"
#include "conformance/model/manager_subject.hpp"
#include "wrong_rules.hpp"

namespace emm::model {
namespace {

// The default manager against the model, call by call. EMM_MODEL_SEQUENCES sets how many sequences
// are played, EMM_MODEL_SEED the first seed.

#if defined(EMM_ADDRESS_SANITIZER) || defined(EMM_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr std::uint64_t kSequences = kSanitized ? 10'000 : 100'000;
constexpr std::uint64_t kFewer = kSequences / 5;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : text::to_u64(value).value_or(otherwise);
}

/// A manager by its spec, and the rules that it should keep.
struct Judged {
  std::string_view name;
  std::string_view spec;
  Rules rules;
  std::uint64_t sequences = kSequences;
  friend void PrintTo(const Judged& judged, std::ostream* out) { *out << judged.spec; }
};

class ManagerModel : public testing::TestWithParam<Judged> {};

TEST_P(ManagerModel, AgreesWithTheManagerOnEverySequence) {
  const auto first_seed = setting("EMM_MODEL_SEED", 1);
  const auto count = setting("EMM_MODEL_SEQUENCES", GetParam().sequences);

  const auto mismatch = find_mismatch(runner_of(GetParam().rules),
                                      runner_of_manager(GetParam().spec), first_seed, count);

  EXPECT_FALSE(mismatch) << GetParam().spec << " (expected is the model)\n" << mismatch->story;
}

Rules with_limits(Rules rules, std::size_t count, double ratio) {
  rules.count_limit = count;
  rules.ratio = ratio;
  return rules;
}

std::string name_of(const testing::TestParamInfo<Judged>& judged) {
  return std::string(judged.param.name);
}

INSTANTIATE_TEST_SUITE_P(Profile, ManagerModel,
                         testing::Values(Judged{"Standard", "default", Rules::standard()},
                                         Judged{"Numba", "default:profile=numba", Rules::numba()},
                                         Judged{"HostOnlyStandard", "host-only",
                                                Rules::host_only(Rules::standard()), kFewer},
                                         Judged{"HostOnlyNumba", "host-only:profile=numba",
                                                Rules::host_only(Rules::numba()), kFewer}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Limits, ManagerModel,
                         testing::Values(Judged{"Tight", "default:count=3,ratio=0.5",
                                                with_limits(Rules::standard(), 3, 0.5), kFewer},
                                         Judged{"NoCount", "default:profile=numba,count=0",
                                                with_limits(Rules::numba(), 0, 0.2), kFewer},
                                         Judged{"NoBytes", "default:count=20,ratio=0",
                                                with_limits(Rules::standard(), 20, 0), kFewer}),
                         name_of);

TEST(ManagerModelItself, DisagreesWithTheManagerWhereARuleIsChanged) {
  for (const bool numba : {false, true}) {
    const auto manager = runner_of_manager(numba ? "default:profile=numba" : "default");
    for (const auto& wrong : kWrongRules) {
      auto rules = numba ? Rules::numba() : Rules::standard();
      wrong.break_it(rules);

      EXPECT_TRUE(find_mismatch(runner_of(rules), manager, 1, 10'000)) << wrong.what;
    }
  }
}

}  // namespace
}  // namespace emm::model
