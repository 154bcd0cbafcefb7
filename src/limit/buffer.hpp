#pragma once

#include <cstdint>
#include <limits>
#include <vector>

/// How much memory any manager must have for a trace, and how much is enough: dynamic storage
/// allocation with every lifetime known beforehand.
namespace emm::limit {

/// Bytes that are needed from ordinal `lower` up to, and not including, ordinal `upper`.
/// One that has no bytes, or is never live (upper <= lower), needs no memory and may lie anywhere.
struct Buffer {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::uint64_t size = 0;       ///< In bytes.
  std::uint64_t alignment = 1;  ///< Divides its offset; any number of bytes, and 0 is taken as 1.

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// The offset of each buffer, in the order of the buffers.
struct Layout {
  std::vector<std::uint64_t> offsets;
  std::uint64_t height = 0;  ///< The least capacity that holds it: the highest end of a buffer.
};

/// What sums that would pass 64 bits are taken as.
inline constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

inline constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kTooMany - b ? kTooMany : a + b;
}
/// The least multiple of `alignment` that is not below `value`, or kTooMany where 64 bits hold
/// none.
inline constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  if (alignment <= 1) return value;
  const auto over = value % alignment;
  return over == 0 ? value : saturating_add(value, alignment - over);
}

}  // namespace emm::limit
