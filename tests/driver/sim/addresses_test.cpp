#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/prng.hpp"
#include "base/units.hpp"
#include "driver/sim/device_memory.hpp"
#include "driver/sim/page_tree.hpp"
#include "sim/fixture.hpp"

namespace emm::sim {
namespace {

std::optional<std::uint32_t> lowest_run(const std::vector<bool>& taken, std::uint32_t count) {
  std::uint32_t run = 0;
  for (std::uint32_t page = 0; page < taken.size(); ++page) {
    run = taken[page] ? 0 : run + 1;
    if (run == count) return page + 1 - count;
  }
  return std::nullopt;
}

TEST(PageTree, FindsTheLowestRunAsASearchFromTheStartDoes) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Prng random(kSeed);
  PageTree tree(128);
  std::vector<bool> taken(128, false);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;

  for (int step = 0; step < 20000; ++step) {
    const auto count = static_cast<std::uint32_t>(random.between(1, 20));
    const auto found = tree.find(count);
    ASSERT_EQ(found, lowest_run(taken, count)) << "step " << step;
    if (found && random.chance(0.55)) {
      tree.take(*found, count);
      std::fill_n(taken.begin() + *found, count, true);
      runs.emplace_back(*found, count);
    } else if (!runs.empty()) {
      const auto index = random.below(runs.size());
      const auto [first, pages] = runs[index];
      tree.release(first, pages);
      std::fill_n(taken.begin() + first, pages, false);
      runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
}

TEST(MaxTree, FindsTheLowestPageWithEnough) {
  MaxTree tree(8);
  tree.set(3, 5);
  tree.set(6, 9);

  EXPECT_EQ(tree.find(1), 3u);
  EXPECT_EQ(tree.find(6), 6u);
  EXPECT_EQ(tree.find(10), std::nullopt);
  tree.set(3, 0);
  EXPECT_EQ(tree.find(1), 6u);
}

constexpr std::uint64_t kBase = std::uint64_t{1} << 48;

/// The rule of placement by itself: tries every address from the lowest on.
class PlainMemory {
 public:
  explicit PlainMemory(std::uint64_t pages) : pages_(pages) {}

  std::uint64_t allocate(std::uint64_t size) {
    const bool shared = size <= 1_MiB;
    const auto length = shared ? (size + 511) / 512 * 512 : (size + 2_MiB - 1) / 2_MiB * 2_MiB;
    const auto end = kBase + 16 * pages_ * 2_MiB;
    for (auto page = kBase; shared && page < end; page += 2_MiB) {
      if (!is_shared(page)) continue;
      for (auto at = page; at + length <= page + 2_MiB; at += 512) {
        if (is_free(at, length)) return take(at, {length, shared});
      }
    }
    const auto whole = shared ? 2_MiB : length;
    if (held() + whole > pages_ * 2_MiB) return 0;
    for (auto page = kBase; page < end; page += 2_MiB) {
      if (is_free(page, whole)) return take(page, {length, shared});
    }
    return 0;
  }
  void free(std::uint64_t at) { blocks_.erase(at); }
  std::uint64_t held() const {
    std::uint64_t total = 0, last = 0;
    for (const auto& [at, block] : blocks_) {
      if (!block.shared) {
        total += block.length;
      } else if (at / 2_MiB != last) {
        total += 2_MiB;
        last = at / 2_MiB;
      }
    }
    return total;
  }

 private:
  struct Block {
    std::uint64_t length;
    bool shared;
  };
  std::uint64_t take(std::uint64_t at, Block block) {
    blocks_[at] = block;
    return at;
  }
  bool is_shared(std::uint64_t page) const {
    const auto block = blocks_.lower_bound(page);
    return block != blocks_.end() && block->first < page + 2_MiB && block->second.shared;
  }
  bool is_free(std::uint64_t at, std::uint64_t length) const {
    return std::none_of(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
      return at < entry.first + entry.second.length && entry.first < at + length;
    });
  }
  std::uint64_t pages_;
  std::map<std::uint64_t, Block> blocks_;
};

TEST(DeviceMemory, PlacesAsTheRuleSaysWhateverTheOrder) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Prng random(kSeed);
  DeviceMemory memory(kBase, 12);
  PlainMemory plain(12);
  std::vector<std::uint64_t> live;

  for (int step = 0; step < 2000; ++step) {
    if (live.empty() || random.chance(0.55)) {
      const auto size =
          random.chance(0.7) ? random.between(128_KiB, 1_MiB) : random.between(1_MiB + 1, 9_MiB);
      const auto largest = memory.largest_free_bytes();
      const auto address = memory.allocate(size);
      ASSERT_EQ(address, plain.allocate(size)) << "step " << step << ", size " << size;
      ASSERT_EQ(address != 0, size <= largest) << "step " << step;
      if (address != 0) live.push_back(address);
    } else {
      const auto index = random.below(live.size());
      plain.free(live[index]);
      ASSERT_NE(memory.free(live[index]), 0u);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
    ASSERT_EQ(memory.held_bytes(), plain.held()) << "step " << step;
  }
}

TEST(DeviceMemory, FindsTheAllocationAroundAnAddress) {
  DeviceMemory memory(kBase, 100);
  const auto small = memory.allocate(1000);
  const auto next = memory.allocate(512);
  const auto large = memory.allocate(150_MiB);

  EXPECT_EQ(memory.find(small + 999).base, small);
  EXPECT_EQ(memory.find(small + 1000).block, nullptr) << "what rounding up left over is nobody's";
  EXPECT_EQ(memory.find(next).base, next);
  EXPECT_EQ(memory.find(large + 150_MiB - 1).base, large);
  EXPECT_EQ(memory.find(large + 150_MiB).block, nullptr);
  EXPECT_EQ(memory.find(kBase - 1).block, nullptr);
  EXPECT_EQ(memory.find(small + 2_MiB - 1).block, nullptr);
}

}  // namespace
}  // namespace emm::sim
