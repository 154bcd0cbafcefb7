#include "base/options.hpp"

#include <gtest/gtest.h>

#include "base/units.hpp"

namespace emm {
namespace {

TEST(Options, GivesTypedValuesAndDefaults) {
  auto options = Options::parse("max=8GiB,lazy,ratio=0.5");
  ASSERT_TRUE(options);

  EXPECT_EQ(options->bytes("max", 0), 8_GiB);
  EXPECT_TRUE(options->flag("lazy", false));
  EXPECT_EQ(options->number("ratio", 1), 0.5);
  EXPECT_EQ(options->count("other", 3), 3u);
  EXPECT_TRUE(options->finish("manager pool"));
}

TEST(Options, AnUnknownKeyListsTheKnown) {
  auto options = Options::parse("maximum=1");
  options->bytes("max", 0);
  options->bytes("initial", 0);

  const auto done = options->finish("manager pool");

  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "manager pool: unknown option 'maximum': known are max, initial");
}

TEST(Options, ABadValueSaysWhatWasExpected) {
  auto options = Options::parse("max=lots");
  options->bytes("max", 0);

  const auto done = options->finish("manager pool");

  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "manager pool: option 'max' is 'lots': expected a count of bytes such as 512, 4KiB or "
            "1.5GiB");
}

TEST(Options, RefusesRepeatedAndNamelessKeys) {
  EXPECT_FALSE(Options::parse("a=1,a=2"));
  EXPECT_FALSE(Options::parse("=1"));
  EXPECT_FALSE(Options::parse("a=1,,b=2"));
}

}  // namespace
}  // namespace emm
