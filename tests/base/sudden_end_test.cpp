#include "base/sudden_end.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

namespace emm {
namespace {

template <int>
void act() noexcept {}

template <int... kNumbers>
void add_acts(std::integer_sequence<int, kNumbers...>) {
  (before_sudden_end(act<kNumbers>), ...);
}

TEST(SuddenEndDeathTest, ANinthActIsNotLostInSilence) {
  const auto ninth = [] {
    add_acts(std::make_integer_sequence<int, 8>());
    before_sudden_end(act<0>);  // known
    std::fputs("eight. ", stderr);
    before_sudden_end(act<8>);
  };

  EXPECT_EXIT(ninth(), testing::ExitedWithCode(70), "eight. .*a bug of ours");
}

}  // namespace
}  // namespace emm
