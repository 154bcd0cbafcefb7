#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace emm {
namespace {

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

TEST(Result, TakesWhatConvertsToItsValue) {
  const auto make = []() -> Result<std::unique_ptr<Base>> { return std::make_unique<Derived>(); };

  EXPECT_TRUE(make());
}

TEST(Result, CarriesAnError) {
  const Result<int> result = fail(Errc::invalid_value, "{} is bad", 7);

  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::invalid_value);
  EXPECT_EQ(describe(result.error()), "7 is bad");
}

TEST(Result, AnErrorWithoutWordsNamesTheCallAndTheCode) {
  EXPECT_EQ(describe(Error{.code = Errc::out_of_memory, .native = 2, .call = "cuMemAlloc"}),
            "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(describe(Error{.code = Errc::not_supported}), "not supported");
}

TEST(ResultDeathTest, ReadingTheValueOfAFailureIsABug) {
  const Result<int> result = Error{};

  EXPECT_EXIT((void)*result, testing::ExitedWithCode(70), "a bug of ours");
}

}  // namespace
}  // namespace emm
