#pragma once

#include <cstdint>
#include <limits>

namespace emm {

/// A sum of sizes that is exact beyond 64 bits, since a file may state sizes that fit no machine.
class ByteSum {
 public:
  void add(std::uint64_t bytes) noexcept { sum_ += bytes; }
  void add(const ByteSum& other) noexcept { sum_ += other.sum_; }
  /// REQUIRES: `bytes` is at most the sum.
  void subtract(std::uint64_t bytes) noexcept { sum_ -= bytes; }

  bool operator==(const ByteSum&) const = default;
  bool exceeds() const noexcept { return sum_ > std::numeric_limits<std::uint64_t>::max(); }
  /// The sum, but at most 2^64 - 1.
  std::uint64_t value() const noexcept {
    return exceeds() ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(sum_);
  }

 private:
  unsigned __int128 sum_ = 0;
};

}  // namespace emm
