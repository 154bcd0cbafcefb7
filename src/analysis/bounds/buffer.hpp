#pragma once

#include <cstdint>
#include <limits>
#include <vector>

/// How much memory any manager needs for a trace, and how much is enough. This is dynamic storage
/// allocation with every lifetime known beforehand.
namespace emm::bounds {

/// Bytes that are needed from ordinal `lower` up to, and not including, ordinal `upper`. A buffer
/// of no bytes, or one that is never live (upper <= lower), needs no memory and may lie anywhere.
struct Buffer {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::uint64_t size = 0;       ///< In bytes.
  std::uint64_t alignment = 1;  ///< Divides the offset. Any number of bytes; 0 means 1.

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// The offset of each buffer, in the order of the buffers.
struct Layout {
  std::vector<std::uint64_t> offsets;
  /// The least capacity that holds the layout: the highest end of a buffer.
  std::uint64_t height = 0;
};

/// Replaces every sum that does not fit 64 bits.
inline constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

inline constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kTooMany - b ? kTooMany : a + b;
}
/// The least multiple of `alignment` that is not below `value`, or kTooMany if 64 bits cannot hold
/// it.
inline constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  if (alignment <= 1) return value;
  const auto over = value % alignment;
  return over == 0 ? value : saturating_add(value, alignment - over);
}

}  // namespace emm::bounds
