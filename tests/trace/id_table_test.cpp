#include "trace/id_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/prng.hpp"

namespace emm::trace {
namespace {

TEST(IdTable, NumbersIdsInTheOrderOfFirstMentionHoweverTheyCount) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    IdTable table;
    std::map<std::uint64_t, std::uint32_t> known;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t size = known.size();
      const std::uint64_t numbers[] = {size, random.below(1 + 3 * size),
                                       4 * (size + 1000 + random.below(40)) - 20,
                                       random.below(std::uint64_t{1} << 30)};
      const auto number = numbers[random.below(4)];

      const auto found = table.find_or_add(Id::of(number));

      const auto [at, added] = known.try_emplace(number, static_cast<std::uint32_t>(size));
      ASSERT_EQ(found.added, added);
      ASSERT_EQ(found.index, at->second);
      ASSERT_EQ(table.number(found.index), number);
    }
  }
}

}  // namespace
}  // namespace emm::trace
