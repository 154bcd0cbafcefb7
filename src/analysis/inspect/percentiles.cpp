#include "inspect/percentiles.hpp"

#include <algorithm>
#include <utility>

namespace emm::inspect {
namespace {

// The usual size, and two that say how long the tail is.
constexpr std::array<std::uint64_t, 3> kPercents{50, 90, 99};

}  // namespace

void PercentileFinder::grow(std::size_t bucket) {
  counts_.resize(std::max(bucket + 1, counts_.size() + counts_.size() / 2));
}

std::uint64_t PercentileFinder::least_of(std::size_t bucket) noexcept {
  if (bucket < kExact) return bucket;
  const auto shift = (bucket >> kDigits) - 1;
  const auto digits = (bucket & ((std::size_t{1} << kDigits) - 1)) + (std::size_t{1} << kDigits);
  return std::uint64_t{digits} << shift;
}

void PercentileFinder::begin_again() {
  if (count_ == 0) return;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto before = (count_ * kPercents[i] + 99) / 100 - 1;
    std::size_t bucket = 0;
    for (; before >= counts_[bucket]; ++bucket) before -= counts_[bucket];
    ranks_[i].bucket = bucket;
    ranks_[i].before = before;
  }
}

void PercentileFinder::add_near(Rank& rank, std::uint64_t value) {
  if (rank.too_many) return;
  ++rank.near[value];
  rank.too_many = rank.near.size() > kDifferentMost;
}

std::uint64_t PercentileFinder::value_of(const Rank& rank) {
  if (rank.bucket < kExact || rank.too_many) return least_of(rank.bucket);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> counts(rank.near.begin(), rank.near.end());
  std::sort(counts.begin(), counts.end());
  auto before = rank.before;
  for (const auto& [value, count] : counts) {
    if (before < count) return value;
    before -= count;
  }
  return least_of(rank.bucket);
}

Percentiles PercentileFinder::percentiles() const {
  if (count_ == 0) return {};
  return {.count = count_,
          .min = min_,
          .p50 = value_of(ranks_[0]),
          .p90 = value_of(ranks_[1]),
          .p99 = value_of(ranks_[2]),
          .max = max_};
}

}  // namespace emm::inspect
