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

/// The rules of placement by themselves: looks at every address.
class PlainMemory {
 public:
  explicit PlainMemory(std::uint64_t pages) : pages_(pages) {
    for (const auto size : {8_MiB, 64_MiB, 414_MiB}) of_context_.push_back(take_addresses(size));
  }

  void load_kernels() {
    free(of_context_.back());
    of_context_.back() = take_addresses(64_MiB);
    of_context_.push_back(take_addresses(64_MiB));
  }
  std::uint64_t allocate(std::uint64_t size) {
    if (size > 1_MiB) return take_pages((size + 2_MiB - 1) / 2_MiB * 2_MiB);
    const auto length = (size + 511) / 512 * 512;
    for (auto& [page, taken] : shared_) {
      for (auto at = page; page != 0 && at + length <= page + 2_MiB; at += 512) {
        if (is_free(taken, at, length)) return taken[at] = length, at;
      }
    }
    const auto page = take_pages(2_MiB);
    if (page == 0) return 0;
    auto unused = std::find_if(shared_.begin(), shared_.end(),
                               [](const auto& each) { return each.first == 0; });
    if (unused == shared_.end()) unused = shared_.emplace(unused);
    *unused = {page, {{page, length}}};
    return page;
  }
  void free(std::uint64_t at) {
    const auto page = at / 2_MiB * 2_MiB;
    const auto shared = std::find_if(shared_.begin(), shared_.end(),
                                     [&](const auto& each) { return each.first == page; });
    if (shared != shared_.end()) {
      shared->second.erase(at);
      if (!shared->second.empty()) return;
      shared->first = 0;
    }
    const auto region = std::find_if(regions_.begin(), regions_.end(),
                                     [&](const auto& each) { return each.taken.count(page) != 0; });
    region->taken.erase(page);
    if (region->taken.empty()) regions_.erase(region);
  }
  std::uint64_t held() const {
    std::uint64_t total = 0;
    for (const auto& region : regions_) {
      for (const auto& [at, length] : region.taken) {
        if (std::count(of_context_.begin(), of_context_.end(), at) == 0) total += length;
      }
    }
    return total;
  }

 private:
  using Taken = std::map<std::uint64_t, std::uint64_t>;  // address, length
  struct Region {
    std::uint64_t base, length;
    Taken taken;
  };

  std::uint64_t take_pages(std::uint64_t length) {
    return held() + length > pages_ * 2_MiB ? 0 : take_addresses(length);
  }
  std::uint64_t take_addresses(std::uint64_t length) {
    for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
      const auto at = smallest_hole(*region, length);
      if (at != 0) return region->taken[at] = length, at;
    }
    const auto whole = (length + 32_MiB - 1) / 32_MiB * 32_MiB;
    auto base = kBase + DeviceMemory::kAddresses - whole;
    while (!is_clear(base - 32_MiB, base + whole)) base -= 32_MiB;
    regions_.push_back({base, whole, {{base, length}}});
    return base;
  }
  static std::uint64_t smallest_hole(const Region& region, std::uint64_t length) {
    std::uint64_t best = 0, best_length = ~std::uint64_t{0};
    for (auto at = region.base; at < region.base + region.length; at += 2_MiB) {
      if (!is_free(region.taken, at, 2_MiB) ||
          (at != region.base && is_free(region.taken, at - 2_MiB, 2_MiB)))
        continue;
      auto end = at;
      while (end < region.base + region.length && is_free(region.taken, end, 2_MiB)) end += 2_MiB;
      if (end - at < length || end - at >= best_length) continue;
      best = at;
      best_length = end - at;
    }
    return best;
  }
  bool is_clear(std::uint64_t begin, std::uint64_t end) const {
    return std::none_of(regions_.begin(), regions_.end(), [&](const Region& each) {
      return begin < each.base + each.length && each.base < end;
    });
  }
  static bool is_free(const Taken& taken, std::uint64_t at, std::uint64_t length) {
    return std::none_of(taken.begin(), taken.end(), [&](const auto& entry) {
      return at < entry.first + entry.second && entry.first < at + length;
    });
  }

  std::uint64_t pages_;
  std::vector<std::uint64_t> of_context_;
  std::vector<Region> regions_;                          // the newest last
  std::vector<std::pair<std::uint64_t, Taken>> shared_;  // page; 0: unused
};

TEST(DeviceMemory, PlacesAsTheRuleSaysWhateverTheOrder) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  Prng random(kSeed);
  DeviceMemory memory(kBase, 200, Addresses::driver);
  PlainMemory plain(200);
  std::vector<std::uint64_t> live;
  std::size_t refused = 0;

  for (int step = 0; step < 2500; ++step) {
    if (step == 1000 || step == 1500) memory.load_kernels();
    if (step == 1000) plain.load_kernels();
    if (live.empty() || random.chance(0.6)) {
      const auto size = random.chance(0.4)   ? random.between(128_KiB, 1_MiB)
                        : random.chance(0.9) ? random.between(1_MiB + 1, 9_MiB)
                                             : random.between(9_MiB, 90_MiB);
      const auto largest = memory.largest_free_bytes();
      const auto address = memory.allocate(size);
      ASSERT_EQ(address, plain.allocate(size)) << "step " << step << ", size " << size;
      ASSERT_EQ(address != 0, size <= largest) << "step " << step;
      if (address != 0) live.push_back(address);
      if (address == 0) ++refused;
    } else {
      const auto index = random.below(live.size());
      plain.free(live[index]);
      ASSERT_NE(memory.free(live[index]), 0u);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
    ASSERT_EQ(memory.held_bytes(), plain.held()) << "step " << step;
  }
  EXPECT_GT(refused, 50u);
}

// The first segments of a Llama in PyTorch on an H200, below the end of the context's first region.
TEST(DeviceMemory, GivesAProgramTheAddressesThatAnH200Gave) {
  DeviceMemory memory(kBase, 1000, Addresses::driver);
  const auto at = [&](std::uint64_t size) {
    return (kBase + DeviceMemory::kAddresses - memory.allocate(size)) / 1_MiB;
  };
  EXPECT_EQ(at(20_MiB), 24u);
  for (const auto below : {98u, 4u, 2u}) EXPECT_EQ(at(2_MiB), below);
  EXPECT_EQ(at(20_MiB), 544u);
  EXPECT_EQ(at(2_MiB), 524u);

  memory.load_kernels();

  auto last = at(32_MiB);
  EXPECT_LT(last, 512u) << "what the first kernels had is free";
  for (int i = 0; i < 6; ++i) {
    const auto next = at(20_MiB);
    EXPECT_LT(next, last) << "upwards in it";
    last = next;
  }
  EXPECT_EQ(at(300_MiB), 864u);
}

TEST(DeviceMemory, TakesTheLowestRoomUnderFirstFit) {
  DeviceMemory memory(kBase, 1000, Addresses::first_fit);
  std::vector<std::uint64_t> at;
  for (const auto size : {20_MiB, 6_MiB, 40_MiB, 6_MiB, 20_MiB})
    at.push_back(memory.allocate(size));
  EXPECT_EQ(at,
            (std::vector{kBase, kBase + 20_MiB, kBase + 26_MiB, kBase + 66_MiB, kBase + 72_MiB}));
  memory.load_kernels();
  memory.free(at[1]);
  memory.free(at[2]);
  memory.free(at[0]);
  memory.free(at[3]);

  EXPECT_EQ(memory.allocate(2_MiB), kBase);
  EXPECT_EQ(memory.allocate(900_MiB), kBase + 92_MiB);
  EXPECT_EQ(memory.allocate(70_MiB), kBase + 2_MiB);
  EXPECT_EQ(memory.free(at[4]), 20_MiB);
  EXPECT_EQ(memory.allocate(8_MiB), kBase + 72_MiB);
}

TEST(DeviceMemory, FindsTheAllocationAroundAnAddress) {
  DeviceMemory memory(kBase, 100, Addresses::first_fit);
  const auto small = memory.allocate(1000);
  const auto next = memory.allocate(512);
  const auto large = memory.allocate(150_MiB);

  EXPECT_EQ(memory.find(small + 999).base, small);
  EXPECT_EQ(memory.find(small + 1000).block, nullptr) << "what rounding up left over is nobody's";
  EXPECT_EQ(memory.find(next).base, next);
  EXPECT_EQ(memory.find(large + 150_MiB - 1).base, large);
  EXPECT_EQ(memory.find(large + 150_MiB).block, nullptr);
  EXPECT_EQ(memory.find(kBase - 1).block, nullptr);
  EXPECT_EQ(memory.find(kBase + DeviceMemory::kAddresses).block, nullptr);
  EXPECT_EQ(memory.find(large - 1).block, nullptr);
  EXPECT_EQ(memory.find(small + 2_MiB - 1).block, nullptr);
}

}  // namespace
}  // namespace emm::sim
