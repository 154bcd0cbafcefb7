#include "driver/cuda/held_physical.hpp"

#include <gtest/gtest.h>

#include "base/units.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kAt = 1_TiB, kSize = 2_MiB;

/// Memory that is mapped at the first and the third of four places, and has no handle any more.
void map_two(HeldPhysical& held) {
  for (const std::uint64_t place : {0, 2}) {
    held.create(place + 1, kSize);
    held.map(kAt + place * kSize, kSize, place + 1);
    ASSERT_TRUE(held.release(place + 1));
  }
}

TEST(HeldPhysical, ARangeWithHolesIsUnmapped) {
  HeldPhysical held;
  map_two(held);

  const auto gone = held.unmap(kAt, 4 * kSize);
  EXPECT_EQ(gone.size(), 2u);
  EXPECT_EQ(held.bytes(), 0u);

  held.restore(gone);  // the driver refused
  EXPECT_EQ(held.bytes(), 2 * kSize);
  EXPECT_EQ(held.unmap(kAt + kSize, 2 * kSize).size(), 1u) << "the hole comes first";
}

TEST(HeldPhysical, AMappingIsUnmappedWhole) {
  HeldPhysical held;
  map_two(held);

  EXPECT_TRUE(held.unmap(kAt, 2 * kSize + 4_KiB).empty()) << "the range ends inside a mapping";
  EXPECT_TRUE(held.unmap(kAt + 4_KiB, 4 * kSize).empty()) << "the range begins inside a mapping";
  EXPECT_TRUE(held.unmap(kAt, ~std::uint64_t{0}).empty());
  EXPECT_EQ(held.bytes(), 2 * kSize);
}

}  // namespace
}  // namespace emm
