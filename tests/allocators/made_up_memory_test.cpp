#include "allocators/made_up_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace emm::allocators {
namespace {

constexpr std::uint64_t kTop = std::uint64_t{1} << 46;

// Each stream of each private pool has a range for its expandable segments.
TEST(MadeUpMemory, HasRoomForManyRangesInEveryOrder) {
  const auto range = std::uint64_t{9} << 37;  // 9/8 of 1 TiB
  for (const auto order : {Addresses::ascending, Addresses::descending, Addresses::first_fit}) {
    MadeUpMemory memory(order, kTop, nullptr);
    auto before = memory.reserve(range).value();

    for (int i = 0; i < 1000; ++i) {
      const auto next = memory.reserve(range).value();
      const auto low = std::min(before, next), high = std::max(before, next);
      ASSERT_EQ(high - low, range) << i;
      ASSERT_EQ(next < before, order == Addresses::descending) << i;
      before = next;
    }
  }
}

}  // namespace
}  // namespace emm::allocators
