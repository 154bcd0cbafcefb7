#include "trace/importers/torch_row.hpp"

#include <algorithm>

#include "format/json_value.hpp"
#include "trace/importers/json_row.hpp"

namespace emm::trace {
namespace {

constexpr std::size_t kTime = 4;  // what follows it is a later PyTorch's

/// Where the element of that number begins in `[a,b,c]`; elements of such rows hold no commas.
std::size_t place_of(std::string_view line, std::size_t index) {
  auto at = line.find('[');
  for (; index > 0 && at != std::string_view::npos; --index) at = line.find(',', at + 1);
  if (at == std::string_view::npos) return line.size();
  at = line.find_first_not_of(" \t", at + 1);
  return at == std::string_view::npos ? line.size() : at;
}

}  // namespace

Result<std::optional<BadField>> parse_torch_row(std::string_view line, const std::string& name,
                                                std::uint64_t line_number, TorchRow& row) {
  auto value = format::parse_json(without_comma(line), name, line_number);
  if (!value) return std::move(value).error();

  std::optional<BadField> bad;
  const auto refuse = [&](std::size_t index, std::string_view what, std::string_view expected) {
    if (bad) return;
    const auto at = place_of(line, index);
    const auto end = std::min(line.find_first_of(",]", at), line.size());
    auto said = line.substr(at, end - at);
    if (said.size() > 1 && said.starts_with('"') && said.ends_with('"'))
      said = said.substr(1, said.size() - 2);
    bad = BadField{.what = what, .value = said, .at = at, .expected = expected};
  };
  const auto& elements = value->elements;
  const auto element = [&](std::size_t index) -> const JsonValue* {
    return index < elements.size() ? &elements[index] : nullptr;
  };
  const auto number = [&](std::size_t index, std::string_view what,
                          std::string_view expected) -> std::uint64_t {
    const auto* const said = element(index);
    if (said != nullptr) {
      const auto positive = index == 1       ? address_in(*said)
                            : index == kTime ? time_in(*said)
                                             : said->as_u64();
      if (positive) return *positive;
      if (const auto any = said->as_i64(); any && what == "stream")
        return static_cast<std::uint64_t>(*any);
    }
    refuse(index, what, expected);
    return 0;
  };

  const auto word = element(0) != nullptr ? element(0)->as_string().value_or("") : "";
  const auto* const found = std::find(kTorchActionNames.begin(), kTorchActionNames.end(), word);
  if (found == kTorchActionNames.end()) {
    refuse(0, "action",
           "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
           "segment_unmap, oom or snapshot");
    return bad;
  }
  row.action = static_cast<TorchAction>(found - kTorchActionNames.begin());
  const auto may_lack_address =
      row.action == TorchAction::oom || row.action == TorchAction::snapshot;
  row.has_address = !(may_lack_address && element(1) != nullptr && element(1)->is_null());
  if (row.has_address) row.address = number(1, "address", "an address");
  row.size = number(2, "size", "a count of bytes");
  row.stream = number(3, "stream", "a stream's handle");
  row.has_time = element(kTime) != nullptr;  // PyTorch 2.2 had none
  row.time_us = row.has_time ? number(kTime, "time", "microseconds") : 0;
  return bad;
}

}  // namespace emm::trace
