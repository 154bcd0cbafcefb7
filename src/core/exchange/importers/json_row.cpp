#include "exchange/importers/json_row.hpp"

#include <algorithm>

namespace emm::trace {

/// Finds the member's place by searching its text in the line, which suffices for a message.
void JsonRow::refuse(std::string_view key, std::string_view expected) noexcept {
  if (bad_) return;
  BadField field{.what = key, .value = {}, .at = 0, .expected = expected};
  for (auto at = line_.find(key); at != std::string_view::npos; at = line_.find(key, at + 1)) {
    const auto after = at + key.size();
    if (at == 0 || line_[at - 1] != '"' || after >= line_.size() || line_[after] != '"') continue;
    const auto colon = line_.find_first_not_of(" \t", after + 1);
    if (colon == std::string_view::npos || line_[colon] != ':') continue;
    const auto begin = line_.find_first_not_of(" \t", colon + 1);
    if (begin == std::string_view::npos) break;
    const auto end = line_.find_first_of(",}]", begin);
    field.at = begin;
    auto value = line_.substr(begin, end == std::string_view::npos ? end : end - begin);
    if (value.size() > 1 && value.starts_with('"') && value.ends_with('"'))
      value = value.substr(1, value.size() - 2);
    field.value = value;
    break;
  }
  bad_ = field;
}

std::string_view ArrayRow::word(std::size_t index, std::string_view what,
                                std::string_view expected) noexcept {
  const auto* const said = element(index);
  const auto text = said != nullptr ? said->as_string() : std::nullopt;
  if (!text) refuse(index, what, expected);
  return text.value_or(std::string_view{});
}

void ArrayRow::refuse(std::size_t index, std::string_view what,
                      std::string_view expected) noexcept {
  if (bad_) return;
  auto at = line_.find('[');
  for (; index > 0 && at != std::string_view::npos; --index) at = line_.find(',', at + 1);
  if (at != std::string_view::npos) at = line_.find_first_not_of(" \t", at + 1);
  at = std::min(at, line_.size());
  auto said = line_.substr(at, std::min(line_.find_first_of(",]", at), line_.size()) - at);
  if (said.size() > 1 && said.starts_with('"') && said.ends_with('"'))
    said = said.substr(1, said.size() - 2);
  bad_ = BadField{.what = what, .value = said, .at = at, .expected = expected};
}

}  // namespace emm::trace
