#include "report/columns.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace emm::report {
namespace {

TEST(Column, WritesSevenBitsAByteTheLeastSignificantFirst) {
  Column column;
  for (const std::uint64_t number : {0, 127, 128, 300}) column.add(number);

  EXPECT_EQ(column.bytes(), std::string("\0\x7f\x80\x01\xac\x02", 6));
}

TEST(Column, WritesNumbersBelowZeroAsOddOnes) {
  Column column;
  for (const std::int64_t number : {0, -1, 1, -2, 64}) column.add_signed(number);

  EXPECT_EQ(column.bytes(), std::string("\0\x01\x02\x03\x80\x01", 6));
}

TEST(Column, WritesTheGreatestNumberInTenBytes) {
  Column column;
  column.add(std::numeric_limits<std::uint64_t>::max());

  EXPECT_EQ(column.bytes(), std::string(9, '\xff') + '\x01');
}

TEST(Payload, IsAZlibStreamInBase64) {
  Payload payload;
  payload.add("first", std::string(1000, 'a'));
  payload.add("second", "bc");

  const auto packed = payload.packed();

  EXPECT_EQ(packed.size() % 4, 0u);
  EXPECT_LT(packed.size(), 60u);
  ASSERT_EQ(payload.columns().size(), 2u);
  EXPECT_EQ(payload.columns()[0].size, 1000u);
  EXPECT_EQ(payload.columns()[1].name, "second");
  EXPECT_EQ(packed.substr(0, 2), "eJ") << "zlib's first byte is 0x78";
}

}  // namespace
}  // namespace emm::report
