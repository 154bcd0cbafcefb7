#include "log/digits.hpp"

namespace emm::log {
namespace {

char* put_as_double(char* at, std::uint64_t ns) noexcept {
  return std::to_chars(at, at + kNumber, static_cast<double>(ns) * 1e-9, std::chars_format::general,
                       6)
      .ptr;
}

}  // namespace

char* put_seconds(char* at, std::uint64_t ns) noexcept {
  using digits::kPowers;
  if (ns == 0) return put(at, '0');
  if (ns >= kPowers.back()) return put_as_double(at, ns);
  // Estimates the count of decimal digits from that of binary digits: 1233/4096 is just above
  // log10(2).
  auto count = static_cast<std::size_t>(std::bit_width(ns)) * 1233 >> 12;
  if (ns >= kPowers[count]) ++count;
  auto exponent = static_cast<int>(count) - 10;  // of the first digit
  auto six = ns;
  if (count <= 6) {
    six *= kPowers[6 - count];
  } else {
    const auto unit = kPowers[count - 6];
    six = ns / unit;
    const auto twice = (ns - six * unit) * 2;
    // An exact half is rounded as the double's own error decides. Elsewhere that error is too small
    // to matter below 10^15 ns.
    if (twice == unit) return put_as_double(at, ns);
    if (twice > unit && ++six == 1'000'000) {
      six = 100'000;
      ++exponent;
    }
  }
  if (exponent > 5) return put_as_double(at, ns);
  const auto shown = digits::decimal(six * 100);
  const auto text = shown | digits::kZeros;
  const int significant = 8 - std::countl_zero(shown) / 8;
  if (exponent < -4) {
    at = put(at, static_cast<char>(text));
    if (significant > 1) at = digits::put(put(at, '.'), text, 1, significant - 1);
    at = put(at, "e-0");
    return put(at, static_cast<char>('0' - exponent));
  }
  if (exponent < 0) {
    put(at, "0.000000");
    return digits::put(at + 1 - exponent, text, 0, significant);
  }
  const int whole = exponent + 1;
  at = digits::put(at, text, 0, whole);
  if (significant <= whole) return at;
  return digits::put(put(at, '.'), text, whole, significant - whole);
}

}  // namespace emm::log
