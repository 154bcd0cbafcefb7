#include "bounds/attempts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/prng.hpp"

namespace emm::bounds {
namespace {

// The weight of each measure, in sixteenths of a bit per octave, and the most that chance may add.
struct Weights {
  std::uint64_t length;
  std::uint64_t size;
  std::uint64_t contention;
  std::uint64_t noise;
};

// Tried in this order, before weights by chance.
constexpr std::array kFirst{
    Weights{.length = 1000, .size = 30, .contention = 1, .noise = 0},
    Weights{.length = 30, .size = 30, .contention = 1000, .noise = 0},
    Weights{.length = 100, .size = 100, .contention = 1, .noise = 0},
    Weights{.length = 30, .size = 1000, .contention = 1, .noise = 0},
    Weights{.length = 100, .size = 10, .contention = 1000, .noise = 0},
};

Weights weights_of(std::uint64_t number, Prng& random) {
  if (number < kFirst.size()) return kFirst[number];
  return {.length = random.below(200),
          .size = random.below(200),
          .contention = random.below(1000),
          .noise = random.below(4) * 10};
}

// log2 of value in 65536ths, interpolated linearly between the powers of two.
std::uint64_t log2_of(std::uint64_t value) {
  const auto octave = static_cast<unsigned>(std::bit_width(value) - 1);
  const auto over = value - (std::uint64_t{1} << octave);
  const auto fraction = octave >= 16 ? over >> (octave - 16) : over << (16 - octave);
  return (std::uint64_t{octave} << 16) + fraction;
}

constexpr std::uint64_t luby(std::uint64_t number) {
  auto n = number + 1;
  while (!std::has_single_bit(n + 1)) n -= std::bit_floor(n) - 1;
  return (n + 1) / 2;
}

}  // namespace

Attempts::Attempts(const Instance& instance) : instance_(instance) {
  const auto totals = instance.section_totals();
  for (const auto& item : instance.items) {
    contention_.push_back(
        *std::max_element(totals.begin() + item.first, totals.begin() + item.last));
  }
}

std::vector<std::uint32_t> Attempts::ranks(std::uint64_t number) const {
  Prng random(number);
  const auto weights = weights_of(number, random);
  std::vector<std::uint64_t> keys;
  for (std::size_t i = 0; i < instance_.items.size(); ++i) {
    const auto& item = instance_.items[i];
    keys.push_back(
        weights.length * log2_of(item.last - item.first) + weights.size * log2_of(item.size) +
        weights.contention * log2_of(contention_[i]) + random.below((weights.noise << 16) + 1));
  }
  std::vector<std::uint32_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
  std::vector<std::uint32_t> ranks(order.size());
  for (std::uint32_t rank = 0; rank < order.size(); ++rank) ranks[order[rank]] = rank;
  return ranks;
}

std::uint64_t Attempts::nodes(std::uint64_t number) const {
  const auto dive = instance_.items.size();  // a search without a dead end takes this many
  return (dive + dive / 4 + 40) * luby(number / 2);
}

}  // namespace emm::bounds
