#include "base/units.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "base/text.hpp"

namespace emm::units {
namespace {

using Unit = std::pair<std::string_view, std::uint64_t>;

// As coreutils reads sizes: a letter alone counts in 1024, with a b in 1000, with ib in 1024.
constexpr std::array<Unit, 14> kByteUnits{{{"", 1},
                                           {"b", 1},
                                           {"k", 1_KiB},
                                           {"kb", 1'000},
                                           {"kib", 1_KiB},
                                           {"m", 1_MiB},
                                           {"mb", 1'000'000},
                                           {"mib", 1_MiB},
                                           {"g", 1_GiB},
                                           {"gb", 1'000'000'000},
                                           {"gib", 1_GiB},
                                           {"t", 1_TiB},
                                           {"tb", 1'000'000'000'000},
                                           {"tib", 1_TiB}}};
constexpr std::array<Unit, 7> kTimeUnits{{{"", 1},
                                          {"ns", 1},
                                          {"us", 1'000},
                                          {"ms", 1'000'000},
                                          {"s", 1'000'000'000},
                                          {"min", 60'000'000'000},
                                          {"h", 3'600'000'000'000}}};

template <std::size_t N>
std::optional<std::uint64_t> parse(std::string_view input, const std::array<Unit, N>& table) {
  const auto digits = input.find_first_not_of("0123456789.");
  const auto number = input.substr(0, digits);
  const auto unit =
      text::lower(digits == std::string_view::npos ? "" : text::trim(input.substr(digits)));
  for (const auto& [name, scale] : table) {
    if (unit != name) continue;
    if (const auto whole = text::to_u64(number)) {
      if (*whole > ~std::uint64_t{0} / scale) return std::nullopt;
      return *whole * scale;
    }
    const auto fraction = text::to_double(number);
    if (!fraction || number.starts_with('.')) return std::nullopt;
    // Drops the fraction of a smallest unit: 139.8GiB is not a whole number of bytes.
    const auto scaled = std::floor(*fraction * static_cast<double>(scale));
    const bool lost_all = scaled == 0 && *fraction != 0;
    if (scale == 1 || lost_all || scaled >= 0x1.0p63) return std::nullopt;
    return static_cast<std::uint64_t>(scaled);
  }
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view input) {
  if (const auto value = parse(input, kByteUnits)) return *value;
  return fail(Errc::usage,
              "'{}' is not a size: expected a count of bytes such as 512, 4KiB or 1.5GiB", input);
}

Result<std::uint64_t> parse_capacity(std::string_view input) {
  auto value = parse_bytes(input);
  if (value && *value != 0 && *value < 1_MiB && text::to_u64(input))
    return fail(Errc::usage, "a capacity of {} bytes: did you mean {}GiB?", input, input);
  return value;
}

Result<std::uint64_t> parse_ns(std::string_view input) {
  if (const auto value = parse(input, kTimeUnits)) return *value;
  return fail(Errc::usage, "'{}' is not a time: expected one such as 250ns, 10us, 1.5ms or 2s",
              input);
}

namespace {

constexpr std::array<std::string_view, 7> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

// One process answers one command, and every text of that command follows its option --bytes.
bool exact = false;

/// Divides by 1024 until `value` is less than `most`.
std::pair<double, std::string_view> scaled_below(double most, std::uint64_t value) {
  std::size_t power = 0;
  auto scaled = static_cast<double>(value);
  while (scaled >= most && power + 1 < kNames.size()) {
    scaled /= 1024;
    ++power;
  }
  return {scaled, kNames.at(power)};
}

}  // namespace

void write_exact_bytes() { exact = true; }
bool writes_exact_bytes() { return exact; }

std::string bytes(std::uint64_t value) {
  if (exact) return text::format("{} B", text::grouped(value));
  if (value < 1_KiB) return text::format("{} B", value);
  const auto [scaled, unit] = scaled_below(1024, value);
  return text::format("{} {}", text::fixed(scaled, 2), unit);
}

std::string enough_bytes(std::uint64_t value) {
  constexpr double kThreeDigits = 1000;  // three digits are shown
  if (exact || static_cast<double>(value) < kThreeDigits) return short_bytes(value);
  const auto [scaled, unit] = scaled_below(kThreeDigits, value);
  const int decimals = scaled < 1 ? 3 : scaled < 10 ? 2 : scaled < 100 ? 1 : 0;
  const auto steps = std::pow(10.0, decimals);
  const auto up = std::ceil(scaled * steps) / steps;
  // What is rounded up to ten or a hundred has a digit less behind the point.
  const int shown = up < 1 ? 3 : up < 10 ? 2 : up < 100 ? 1 : 0;
  return text::format("{} {}", text::fixed(up, shown), unit);
}

std::string short_bytes(std::uint64_t value) {
  // 999.5 would be shown with four digits.
  constexpr double kFourDigits = 999.5;
  if (exact || static_cast<double>(value) < kFourDigits)
    return text::format("{} B", text::grouped(value));
  const auto [scaled, unit] = scaled_below(kFourDigits, value);
  // Below 1 and from 9.995 and 99.95 on, rounding decides how many decimals make three digits.
  const int decimals = scaled < 0.9995 ? 3 : scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return text::format("{} {}", text::fixed(scaled, decimals), unit);
}

std::string round_bytes(std::uint64_t value) {
  auto out = bytes(value);
  if (const auto zeros = out.find(".00 "); zeros != std::string::npos) out.erase(zeros, 3);
  return out;
}

std::string ns(double value) {
  constexpr std::array<std::string_view, 4> kTimeNames{"ns", "us", "ms", "s"};
  std::size_t power = 0;
  while (value >= 1000 && power + 1 < kTimeNames.size()) {
    value /= 1000;
    ++power;
  }
  return text::format("{} {}", text::fixed(value, power == 0 ? 0 : 2), kTimeNames[power]);
}

}  // namespace emm::units
