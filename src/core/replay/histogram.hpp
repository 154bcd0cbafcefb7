#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "log/summary.hpp"

namespace emm::replay {

/// Counts durations in logarithmic buckets. A percentile is at most 1/64 too high, and the maximum
/// is exact. Adding allocates no memory.
class Histogram {
 public:
  void add(std::uint64_t ns) noexcept {
    ++buckets_[bucket(ns)];
    ++count_;
    max_ = std::max(max_, ns);
  }
  void add(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
  }
  void clear() noexcept { *this = Histogram(); }
  std::uint64_t count() const noexcept { return count_; }

  /// The smallest value v such that at least count * part / whole of the values are at most v.
  std::uint64_t at(std::uint64_t part, std::uint64_t whole) const noexcept {
    const auto rank = count_ / whole * part + (count_ % whole * part + whole - 1) / whole;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen != 0 && seen >= rank) return std::min(highest(i), max_);
    }
    return max_;
  }
  log::Percentiles percentiles() const noexcept {
    return {.count = count_,
            .p50 = at(50, 100),
            .p90 = at(90, 100),
            .p99 = at(99, 100),
            .p999 = at(999, 1000),
            .max = max_};
  }

 private:
  static constexpr unsigned kBits = 6;  // buckets an octave, as a power of two

  // Below 2^7 each value has its own bucket; above, the top seven bits select it.
  static std::size_t bucket(std::uint64_t value) noexcept {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    const auto shift = width > kBits + 1 ? width - (kBits + 1) : 0;
    return (std::size_t{shift} << kBits) + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t highest(std::size_t bucket) noexcept {
    if (bucket < (std::size_t{2} << kBits)) return bucket;
    const auto shift = (bucket >> kBits) - 1;
    const auto top = bucket - (shift << kBits);
    return ((static_cast<std::uint64_t>(top) + 1) << shift) - 1;
  }

  std::array<std::uint64_t, (64 - kBits + 1) << kBits> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace emm::replay
