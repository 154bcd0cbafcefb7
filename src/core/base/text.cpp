#include "base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/utf8.hpp"

namespace emm::text {

void append(std::string& out, std::string_view value) { out.append(value); }
void append(std::string& out, char value) { out.push_back(value); }
void append(std::string& out, bool value) { out.append(value ? "true" : "false"); }

void append(std::string& out, std::uint64_t value) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, static_cast<std::size_t>(end - buffer));
}

void append(std::string& out, std::int64_t value) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, static_cast<std::size_t>(end - buffer));
}

void append(std::string& out, double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, static_cast<std::size_t>(end - buffer));
}

std::string_view append_up_to_hole(std::string& out, std::string_view words) {
  const auto hole = words.find("{}");
  if (hole == std::string_view::npos) {
    out.append(words);
    return {};
  }
  out.append(words.substr(0, hole));
  return words.substr(hole + 2);
}

std::string hex(std::uint64_t value) {
  char buffer[24] = "0x";
  const auto end = std::to_chars(buffer + 2, buffer + sizeof buffer, value, 16).ptr;
  return {buffer, end};
}

std::string fixed(double value, int decimals) {
  char buffer[352];  // the longest double in fixed notation has 309 digits before the point
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals).ptr;
  return {buffer, end};
}

std::string grouped(std::uint64_t value) {
  std::string digits;
  append(digits, value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::optional<std::uint64_t> to_u64(std::string_view digits) {
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    digits.remove_prefix(2);
    base = 16;
  }
  std::uint64_t value = 0;
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || failed != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

std::optional<double> to_double(std::string_view digits) {
  double value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || failed != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

std::string lower(std::string_view value) {
  std::string out(value);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string printable(std::string_view value, std::size_t most) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  while (!value.empty()) {
    if (out.size() >= most) return out += "...";
    const auto length = utf8_length(value);
    const auto c = static_cast<unsigned char>(value.front());
    if (length != 0 && !is_hidden(value)) {
      out.append(value.substr(0, length));
    } else if (length <= 1) {
      out += {'\\', 'x', kDigits[c / 16], kDigits[c % 16]};
    } else {
      out.append("\\u{").append(std::string_view(hex(code_point(value))).substr(2)).push_back('}');
    }
    value.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string_view trim(std::string_view value) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = value.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return value.substr(begin, value.find_last_not_of(kSpace) - begin + 1);
}

std::optional<std::string_view> nearest(std::string_view word, const std::string_view* known,
                                        std::size_t count) {
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::vector<std::size_t> row;
  for (std::size_t k = 0; k < count; ++k) {
    row.resize(known[k].size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const auto replaced = diagonal + (word[i] == known[k][j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = known[k];
    }
  }
  return best;
}

}  // namespace emm::text
