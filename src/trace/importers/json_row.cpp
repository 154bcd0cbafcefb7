#include "trace/importers/json_row.hpp"

namespace emm::trace {

/// Where the member stands in the line: by its text, which is enough to point at it.
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

}  // namespace emm::trace
