#include "message/figure.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/units.hpp"

namespace emm::message {
namespace {

__extension__ using Wide = unsigned __int128;  // for products of a count and a unit

constexpr std::uint64_t kMost64 = ~std::uint64_t{0};

struct Unit {
  std::string_view name;
  unsigned power;  // of 1024
};
// The longest first. Frameworks print GB and G and mean 1024 cubed.
constexpr std::array<Unit, 22> kUnits{
    {{"bytes", 0}, {"Bytes", 0}, {"byte", 0}, {"KiB", 1}, {"MiB", 2}, {"GiB", 3},
     {"TiB", 4},   {"PiB", 5},   {"EiB", 6},  {"KB", 1},  {"kB", 1},  {"MB", 2},
     {"GB", 3},    {"TB", 4},    {"EB", 6},   {"K", 1},   {"M", 2},   {"G", 3},
     {"T", 4},     {"B", 0},     {"P", 5},    {"E", 6}}};

bool is_figure_digit(char c) noexcept { return c >= '0' && c <= '9'; }

std::uint64_t capped(Wide value) noexcept {
  return value > kMost64 ? kMost64 : static_cast<std::uint64_t>(value);
}

}  // namespace

Range operator+(Range a, Range b) noexcept {
  return {capped(Wide{a.least} + b.least), capped(Wide{a.most} + b.most)};
}

Range operator-(Range a, Range b) noexcept {
  return {a.least - std::min(a.least, b.most), a.most - std::min(a.most, b.least)};
}

Range least_of(Range a, Range b) noexcept {
  return {std::min(a.least, b.least), std::min(a.most, b.most)};
}

std::optional<bool> reaches(Range a, Range b) noexcept {
  if (a.least >= b.most) return true;
  if (a.most < b.least) return false;
  return std::nullopt;
}

/// Does `text` begin with one or two digits and a unit that a fraction may have?
static bool fraction_has_unit(std::string_view text) noexcept {
  std::size_t digits = 0;
  while (digits < text.size() && is_figure_digit(text[digits])) ++digits;
  if (digits == 0 || digits > 2) return false;
  return std::any_of(kUnits.begin(), kUnits.end(), [&](const Unit& unit) {
    return unit.power > 0 && text.substr(digits).starts_with(unit.name);
  });
}

std::optional<Token> number_at(std::string_view text) noexcept {
  Token token;
  bool point = false;
  while (token.size < text.size()) {
    const auto c = text[token.size];
    const bool digit_follows =
        token.size + 1 < text.size() && is_figure_digit(text[token.size + 1]);
    // A comma groups three digits, and no more follow.
    const bool groups = c == ',' && !point && token.size > 0 && text.front() != '0' &&
                        token.size + 3 < text.size() && is_figure_digit(text[token.size + 1]) &&
                        is_figure_digit(text[token.size + 2]) &&
                        is_figure_digit(text[token.size + 3]) &&
                        (token.size + 4 == text.size() || !is_figure_digit(text[token.size + 4]));
    // One or two digits behind a comma are a fraction, as in "1,70 GiB".
    const bool is_fraction = c == ',' && digit_follows && text.find(',') == token.size && !groups &&
                             fraction_has_unit(text.substr(token.size + 1));
    if (is_figure_digit(c) || groups) {
      ++token.size;
    } else if ((c == '.' || is_fraction) && !point && token.size > 0 && digit_follows) {
      point = true;
      ++token.size;
    } else {
      break;
    }
  }
  if (token.size == 0) return std::nullopt;
  token.digits = token.size;
  const auto rest = text.substr(token.size);
  for (const auto& unit : kUnits) {
    if (!rest.starts_with(unit.name)) continue;
    token.unit = unit.name;
    token.size += unit.name.size();
    break;
  }
  return token;
}

std::optional<Figure> figure(std::string_view digits, std::string_view unit, Rounding rounding) {
  Wide scaled = 0, scale = 1;
  bool point = false;
  const auto comma = digits.rfind(',');
  const bool is_fraction = comma != digits.npos && digits.size() - comma < 4;
  for (const auto c : digits) {
    if (c == ',' && !is_fraction) continue;
    if (c == '.' || c == ',') {
      point = true;
      continue;
    }
    if (scaled > Wide{kMost64} || scale > Wide{1'000'000'000}) return std::nullopt;
    scaled = scaled * 10 + static_cast<unsigned>(c - '0');
    if (point) scale *= 10;
  }
  unsigned power = 0;
  for (const auto& each : kUnits) {
    if (each.name != unit) continue;
    power = each.power;
    break;
  }
  if (point && unit.empty()) return std::nullopt;  // Its unit is cut off, or not known.
  const auto bytes = Wide{1} << (10 * power);
  if (scaled > (Wide{kMost64} * 10) || scaled / scale * bytes > Wide{kMost64}) return std::nullopt;
  Figure out;
  out.printed = std::string(digits) + (unit.empty() ? " bytes" : " " + std::string(unit));
  if (power == 0) {
    out.bytes = {capped(scaled / scale), capped(scaled / scale)};
    return out;
  }
  const auto twice = 2 * scale;
  const auto low = scaled == 0 ? Wide{0} : (2 * scaled - 1) * bytes;
  out.bytes.least = capped((low + twice - 1) / twice);
  out.bytes.most = capped((2 * scaled + 1) * bytes / twice);
  // Digits finer than a byte: no whole number is rounded to them, and one beside them is meant.
  if (out.bytes.least > out.bytes.most) std::swap(out.bytes.least, out.bytes.most);
  if (rounding == Rounding::truncates && power > 1)
    out.bytes.most = capped(Wide{out.bytes.most} + (bytes >> 10) - 1);
  return out;
}

std::string words_of(Range range) {
  auto least = units::bytes(range.least);
  const auto most = units::bytes(range.most);
  if (least == most) return most;
  if (range.least == 0) return "up to " + most;
  const auto unit = least.find(' ');
  if (least.substr(unit) == most.substr(most.find(' '))) least.resize(unit);
  return least + " to " + most;
}

}  // namespace emm::message
