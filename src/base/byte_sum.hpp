#pragma once

#include <cstdint>
#include <limits>

namespace emm {

/// A sum of sizes, exact also beyond 64 bits: what a file says of sizes need not fit into any
/// machine.
class ByteSum {
 public:
  void add(std::uint64_t bytes) noexcept { sum_ += bytes; }
  void add(const ByteSum& other) noexcept { sum_ += other.sum_; }
  /// REQUIRES: no more than was added.
  void subtract(std::uint64_t bytes) noexcept { sum_ -= bytes; }

  bool operator==(const ByteSum&) const = default;
  bool exceeds() const noexcept { return sum_ > std::numeric_limits<std::uint64_t>::max(); }
  /// The sum; 2^64 - 1 where it exceeds that.
  std::uint64_t value() const noexcept {
    return exceeds() ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(sum_);
  }

 private:
  unsigned __int128 sum_ = 0;
};

}  // namespace emm
