#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace emm::inspect {

/// The percentiles of numbers, by nearest rank.
struct Percentiles {
  std::uint64_t count = 0;
  std::uint64_t min = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  bool operator==(const Percentiles&) const = default;
};

/// The percentiles of numbers that are not kept: the caller passes them twice, one by one. The
/// first pass finds a narrow bucket for each percentile, the second pass the number in that bucket.
/// Only if a bucket has more than kDifferentMost different numbers, its percentile is too small, by
/// less than 1 in 16,384.
class PercentileFinder {
 public:
  // Numbers of a bucket that are kept apart; with more, its middle is the answer.
  static constexpr std::size_t kDifferentMost = std::size_t{1} << 20;

  void add(std::uint64_t value) {
    const auto bucket = bucket_of(value);
    if (bucket >= counts_.size()) grow(bucket);
    ++counts_[bucket];
    ++count_;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
  }
  /// Ends the first pass.
  void begin_again();
  void add_again(std::uint64_t value) {
    if (value < kExact) return;  // its bucket has no other
    const auto bucket = bucket_of(value);
    for (auto& rank : ranks_) {
      if (rank.bucket == bucket) add_near(rank, value);
    }
  }
  /// Called after the second pass.
  Percentiles percentiles() const;

 private:
  static constexpr unsigned kDigits = 14;  // bits that are kept of a number: 1 in 16,384
  // Smaller numbers have a bucket each.
  static constexpr std::uint64_t kExact = std::uint64_t{2} << kDigits;
  struct Rank {
    std::size_t bucket = 0;
    std::uint64_t before = 0;  ///< How many numbers of the bucket precede the percentile.
    std::unordered_map<std::uint64_t, std::uint64_t> near;  ///< Counts of numbers of the bucket.
    bool too_many = false;
  };

  static std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < kExact) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - 1 - kDigits;
    return (static_cast<std::size_t>(shift) << kDigits) + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t least_of(std::size_t bucket) noexcept;
  static void add_near(Rank& rank, std::uint64_t value);
  static std::uint64_t value_of(const Rank& rank);
  void grow(std::size_t bucket);

  std::vector<std::uint32_t> counts_;
  std::uint64_t count_ = 0, min_ = ~std::uint64_t{0}, max_ = 0;
  std::array<Rank, 3> ranks_;
};

}  // namespace emm::inspect
