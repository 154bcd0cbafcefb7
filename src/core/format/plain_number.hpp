#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace emm::format {

/// Reads the 1 to 16 decimal digits at `at` and moves `at` behind them. If there are none or more,
/// returns false and leaves `at`. Does not look at what follows the digits. REQUIRES: 24 bytes from
/// `at` are readable, as a LineReader promises for its lines.
inline bool take_plain_number(const char*& at, std::uint64_t& value) noexcept {
  static_assert(std::endian::native == std::endian::little);
  // Loads eight characters into a word, the first one in the lowest byte. Counts the leading digits
  // and returns their value.
  const auto take = [](const char* from, unsigned& count) {
    // Eight times '0', and what lifts all above 9 to a top bit.
    constexpr std::uint64_t kZeros = 0x3030303030303030, kAboveNine = 0x7676767676767676;
    constexpr std::uint64_t kHighBits = 0x8080808080808080;
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    word ^= kZeros;
    const auto others =
        ((word + kAboveNine) | word) & kHighBits;  // exact up to the first byte that is not a digit
    count = others == 0 ? 8 : static_cast<unsigned>(std::countr_zero(others)) / 8;
    if (count == 0) return std::uint64_t{0};
    word <<= 64 - 8 * count;  // puts zeros in front
    word = word * 10 + (word >> 8);
    // Every fourth byte: a pair of digits and room for the carry.
    constexpr std::uint64_t kPairs = 0x000000ff000000ff;
    return ((word & kPairs) * (100 + (std::uint64_t{1000000} << 32)) +
            ((word >> 16) & kPairs) * (1 + (std::uint64_t{10000} << 32))) >>
           32;
  };
  unsigned count = 0;
  value = take(at, count);
  if (count < 8) {
    at += count;
    return count != 0;
  }
  constexpr std::uint64_t kPowers[] = {1,      10,      100,      1000,     10000,
                                       100000, 1000000, 10000000, 100000000};
  const auto low = take(at + 8, count);
  if (count == 8 && static_cast<unsigned char>(at[16] - '0') <= 9) return false;
  value = value * kPowers[count] + low;
  at += 8 + count;
  return true;
}

}  // namespace emm::format
