#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

/// Functions that write one column of a line at `at` and return the place for the next one. The
/// caller provides the room: a number takes less than kNumber bytes.
namespace emm::log {

inline constexpr std::size_t kNumber = 32;  // a double has 24 characters at most, an integer 20

namespace digits {

static_assert(std::endian::native == std::endian::little, "the first digit is in the lowest byte");

// A byte of 1 in each place: eight characters are worked on at once.
inline constexpr std::uint64_t kOnes = 0x0101'0101'0101'0101;
inline constexpr std::uint64_t kZeros = kOnes * '0';
/// 10^0 to 10^15.
inline constexpr auto kPowers = [] {
  std::array<std::uint64_t, 16> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
  return powers;
}();

/// The eight digits of a number below 10^8, one byte each. It splits the number into two fours,
/// then twos, then ones, all side by side. 10486 / 2^20 and 103 / 2^10 stand for 1/100 and 1/10.
inline std::uint64_t decimal(std::uint64_t value) noexcept {
  const auto four = value / 10'000 | value % 10'000 << 32;
  const auto hundreds = (four * 10'486 >> 20) & 0x7f'0000'007f;
  const auto two = hundreds | (four - 100 * hundreds) << 16;
  const auto tens = (two * 103 >> 10) & 0x000f'000f'000f'000f;
  return tens | (two - 10 * tens) << 8;
}

/// The eight hexadecimal digits of a number below 16^8, one byte each.
inline std::uint64_t hex(std::uint64_t value) noexcept {
  value = value >> 16 | (value & 0xffff) << 32;
  value = (value >> 8 & 0xff'0000'00ff) | (value & 0xff'0000'00ff) << 16;
  return (value >> 4 & 0x000f'000f'000f'000f) | (value & 0x000f'000f'000f'000f) << 8;
}
inline std::uint64_t hex_text(std::uint64_t digits) noexcept {
  const auto letters = (digits + 6 * kOnes) >> 4 & kOnes;
  return digits + kZeros + letters * ('a' - '0' - 10);
}

/// Counts the leading zeros. The last digit never counts as one.
inline int leading_zeros(std::uint64_t digits) noexcept {
  return std::countr_zero(digits | std::uint64_t{1} << 56) / 8;
}

/// Writes `count` of the eight characters in `text`, from `first` on.
inline char* put(char* at, std::uint64_t text, int first, int count) noexcept {
  text >>= 8 * first;
  std::memcpy(at, &text, 8);
  return at + count;
}
inline char* put_shortest(char* at, std::uint64_t text, std::uint64_t digits) noexcept {
  const auto zeros = leading_zeros(digits);
  return put(at, text, zeros, 8 - zeros);
}

}  // namespace digits

inline char* put(char* at, char c) noexcept {
  *at = c;
  return at + 1;
}
inline char* put(char* at, std::string_view text) noexcept {
  text.copy(at, text.size());  // unlike memcpy, copy() accepts an empty text without an address
  return at + text.size();
}

inline char* put_decimal(char* at, std::uint64_t value) noexcept {
  constexpr std::uint64_t kEight = 100'000'000;  // the numbers below have eight digits, one word
  if (value < 10) return put(at, static_cast<char>('0' + value));
  if (value >= kEight) {
    at = put_decimal(at, value / kEight);
    return digits::put(at, digits::decimal(value % kEight) | digits::kZeros, 0, 8);
  }
  const auto shown = digits::decimal(value);
  return digits::put_shortest(at, shown | digits::kZeros, shown);
}

/// Numbers that seldom change, each after a comma. Their text is kept, and rebuilt only if a number
/// differs from the previous line.
template <std::size_t N>
class SteadyColumns {
 public:
  char* put_after(char* at, const std::array<std::uint64_t, N>& values) noexcept {
    if (size_ == 0 || values != values_) {
      values_ = values;
      auto* end = text_;
      for (const auto value : values) end = put_decimal(put(end, ','), value);
      size_ = static_cast<std::size_t>(end - text_);
    }
    std::memcpy(at, text_, kSize);
    return at + size_;
  }

 private:
  static constexpr std::size_t kSize = N * 21;  // the longest text

  std::array<std::uint64_t, N> values_{};
  std::size_t size_ = 0;
  char text_[N * kNumber]{};
};

/// "0x7f00"
inline char* put_hex(char* at, std::uint64_t value) noexcept {
  at = put(at, "0x");
  auto shown = digits::hex(value >> 32 != 0 ? value >> 32 : value);
  at = digits::put_shortest(at, digits::hex_text(shown), shown);
  if (value >> 32 == 0) return at;
  shown = digits::hex(value & 0xffff'ffff);
  return digits::put(at, digits::hex_text(shown), 0, 8);
}

/// Writes `ns` nanoseconds in seconds as an ostream prints static_cast<double>(ns) * 1e-9: six
/// significant digits, "%g".
char* put_seconds(char* at, std::uint64_t ns) noexcept;

}  // namespace emm::log
