#include "base/units.hpp"

#include <gtest/gtest.h>

namespace emm::units {
namespace {

TEST(Units, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(*parse_bytes("512"), 512u);
  EXPECT_EQ(*parse_bytes("4KiB"), 4_KiB);
  EXPECT_EQ(*parse_bytes("1.5GiB"), 3_GiB / 2);
  EXPECT_EQ(*parse_bytes("2m"), 2_MiB);
  EXPECT_EQ(*parse_bytes("8G"), 8_GiB);
  EXPECT_EQ(*parse_bytes("8 GB"), 8'000'000'000u);
  EXPECT_EQ(*parse_bytes("1.5kb"), 1500u);
  EXPECT_EQ(*parse_bytes("139.8GiB"), 150'109'106'995u);
  EXPECT_EQ(*parse_bytes("1.0001KiB"), 1024u);
}

TEST(Units, AShortSizeHasThreeDigits) {
  EXPECT_EQ(units::short_bytes(999), "999 B");
  EXPECT_EQ(units::short_bytes(1000), "0.977 KiB");
  EXPECT_EQ(units::short_bytes(1024), "1.00 KiB");
  EXPECT_EQ(units::short_bytes(10'234), "9.99 KiB");
  EXPECT_EQ(units::short_bytes(10'236), "10.0 KiB");
  EXPECT_EQ(units::short_bytes(102'400), "100 KiB");
  EXPECT_EQ(units::short_bytes(999 * 1024 + 400), "999 KiB");
  EXPECT_EQ(units::short_bytes(1000 * 1024), "0.977 MiB");
  EXPECT_EQ(units::short_bytes(std::uint64_t{156} << 30), "156 GiB");
  EXPECT_EQ(units::short_bytes(~std::uint64_t{0}), "16.0 EiB");
}

TEST(Units, ACapacityOfAFewBytesLacksItsUnit) {
  EXPECT_EQ(describe(parse_capacity("22").error()), "a capacity of 22 bytes: did you mean 22GiB?");
  EXPECT_EQ(*parse_capacity("22GiB"), 22_GiB);
  EXPECT_EQ(*parse_capacity("64KiB"), 64_KiB);
  EXPECT_EQ(*parse_capacity("150109880320"), 150'109'880'320u);
}

TEST(Units, RefusesSizesThatAreNotWholeBytes) {
  for (const auto* bad :
       {"", "KiB", "-1", "1.5", "1.5B", "0.0001KiB", "1XiB", "17179869184GiB", ".5GiB"}) {
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  }
}

TEST(Units, ReadsTimes) {
  EXPECT_EQ(*parse_ns("10us"), 10'000u);
  EXPECT_EQ(*parse_ns("1.5ms"), 1'500'000u);
  EXPECT_FALSE(parse_ns("1.5ns"));
  EXPECT_EQ(*parse_ns("1h"), 3'600'000'000'000u);
  EXPECT_FALSE(parse_ns("1d"));
}

TEST(Units, WritesForPeople) {
  EXPECT_EQ(bytes(512), "512 B");
  EXPECT_EQ(bytes(3_GiB / 2), "1.50 GiB");
  EXPECT_EQ(ns(1500), "1.50 us");
}

TEST(Units, WhatIsEnoughIsRoundedUp) {
  EXPECT_EQ(units::enough_bytes(6404_MiB), "6.26 GiB");
  EXPECT_EQ(units::short_bytes(6404_MiB), "6.25 GiB");
  EXPECT_EQ(units::enough_bytes(34_MiB), "34.0 MiB");
  EXPECT_EQ(units::enough_bytes(34_MiB + 1), "34.1 MiB");
  EXPECT_EQ(units::enough_bytes(9999_KiB), "9.77 MiB");
  EXPECT_EQ(units::enough_bytes(1023_MiB), "1.00 GiB");
  EXPECT_EQ(units::enough_bytes(1000_MiB + 1), "0.977 GiB");
  EXPECT_EQ(units::enough_bytes(512), "512 B");
}

}  // namespace
}  // namespace emm::units
