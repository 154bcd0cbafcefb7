#include "base/options.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"

namespace emm {

Result<Options> Options::parse(std::string_view text) {
  Options options;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text::trim(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = item.find('=');
    const auto key = text::trim(item.substr(0, equals));
    if (key.empty()) return fail(Errc::usage, "'{}' is not an option: expected key=value", item);
    if (options.has(key)) return fail(Errc::usage, "option '{}' is given twice", key);
    options.values_.emplace_back(
        key, equals == std::string_view::npos ? "true" : text::trim(item.substr(equals + 1)));
  }
  return options;
}

bool Options::has(std::string_view key) const {
  return std::any_of(values_.begin(), values_.end(),
                     [&](const auto& value) { return value.first == key; });
}

const std::string* Options::find(std::string_view key) {
  known_.emplace_back(key);
  for (const auto& [name, value] : values_) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Options::refuse(std::string_view key, std::string_view value, std::string_view expected) {
  if (refused_.empty())
    refused_ = text::format("option '{}' is '{}': expected {}", key, value, expected);
}

std::uint64_t Options::bytes(std::string_view key, std::uint64_t otherwise) {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (const auto parsed = units::parse_bytes(*value)) return *parsed;
  refuse(key, *value, "a count of bytes such as 512, 4KiB or 1.5GiB");
  return otherwise;
}

std::vector<std::uint64_t> Options::bytes_of_each(std::string_view key) {
  std::vector<std::uint64_t> all;
  const auto* value = find(key);
  if (value == nullptr) return all;
  std::string_view rest = *value;
  for (auto more = true; more;) {
    const auto slash = rest.find('/');
    const auto parsed = units::parse_bytes(rest.substr(0, slash));
    if (!parsed) {
      refuse(key, *value,
             "a count of bytes such as 512, 4KiB or 1.5GiB, or several with a slash between");
      return {};
    }
    all.push_back(*parsed);
    more = slash != std::string_view::npos;
    if (more) rest.remove_prefix(slash + 1);
  }
  return all;
}

std::uint64_t Options::count(std::string_view key, std::uint64_t otherwise) {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (const auto parsed = text::to_u64(*value)) return *parsed;
  refuse(key, *value, "a whole number");
  return otherwise;
}

double Options::number(std::string_view key, double otherwise) {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (const auto parsed = text::to_double(*value)) return *parsed;
  refuse(key, *value, "a number");
  return otherwise;
}

bool Options::flag(std::string_view key, bool otherwise) {
  const auto* value = find(key);
  if (value == nullptr) return otherwise;
  if (*value == "true" || *value == "on" || *value == "1") return true;
  if (*value == "false" || *value == "off" || *value == "0") return false;
  refuse(key, *value, "true or false");
  return otherwise;
}

std::string Options::text(std::string_view key, std::string_view otherwise) {
  const auto* value = find(key);
  return value == nullptr ? std::string(otherwise) : *value;
}

std::string Options::choice(std::string_view key, std::string_view otherwise,
                            std::initializer_list<std::string_view> choices) {
  const auto* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return *value;
  refuse(key, *value, text::format("one of {}", text::join(choices)));
  return std::string(otherwise);
}

Status Options::finish(std::string_view owner) const {
  if (!refused_.empty()) return fail(Errc::usage, "{}: {}", owner, refused_);
  for (const auto& [key, value] : values_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (known_.empty())
      return fail(Errc::usage, "{}: unknown option '{}': it takes none", owner, key);
    return fail(Errc::usage, "{}: unknown option '{}': known are {}", owner, key,
                text::join(known_));
  }
  return {};
}

}  // namespace emm
