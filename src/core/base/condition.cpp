#include "base/condition.hpp"

#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"

namespace emm {

Result<Condition> Condition::parse(const std::string& words,
                                   std::span<const MeasureName> measures) {
  Condition out;
  out.words_ = words;
  const auto sign = words.find_first_of("<>");
  const auto name = text::trim(std::string_view(words).substr(0, sign));
  const MeasureName* measure = nullptr;
  for (const auto& each : measures) {
    if (each.name == name) measure = &each;
  }
  if (sign == std::string::npos || measure == nullptr) {
    std::vector<std::string_view> known;
    for (const auto& each : measures) known.push_back(each.name);
    return fail(Errc::usage, "--fail-if {}: expected < or > between one of {} and a bound", words,
                text::join(known));
  }
  out.measure_ = *measure;
  out.above_ = words[sign] == '>';
  out.or_equal_ = sign + 1 < words.size() && words[sign + 1] == '=';
  auto bound = text::trim(std::string_view(words).substr(sign + (out.or_equal_ ? 2 : 1)));
  out.relative_ = bound.ends_with('x');
  if (out.relative_) bound.remove_suffix(1);
  auto number = text::to_double(bound);
  if (!number && measure->bytes && !out.relative_) {
    if (const auto bytes = units::parse_bytes(bound)) number = static_cast<double>(*bytes);
  }
  if (number && measure->bytes && !out.relative_ && *number != std::floor(*number)) {
    return fail(Errc::usage, "--fail-if {}: a size has no part of a byte: did you mean {}x?", words,
                bound);
  }
  if (!number || !(*number >= 0)) {
    return fail(Errc::usage,
                "--fail-if {}: expected a bound such as 1.02x of the baseline, or a {}", words,
                measure->bytes ? "size" : "number");
  }
  out.bound_ = *number;
  return out;
}

bool Condition::holds(double low, double high, double bound) const noexcept {
  const auto sure = above_ ? low : high;
  return or_equal_ ? (above_ ? sure >= bound : sure <= bound)
                   : (above_ ? sure > bound : sure < bound);
}

std::string Condition::shown(double value) const {
  if (measure_.bytes) return units::bytes(static_cast<std::uint64_t>(value));
  return text::fixed(value,
                     value == static_cast<double>(static_cast<std::uint64_t>(value)) ? 0 : 2);
}

}  // namespace emm
