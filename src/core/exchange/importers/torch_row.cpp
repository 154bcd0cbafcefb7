#include "exchange/importers/torch_row.hpp"

#include <algorithm>

#include "exchange/importers/json_row.hpp"
#include "format/json_value.hpp"

namespace emm::trace {
namespace {

constexpr std::size_t kTorchTime = 4;  // later versions of PyTorch append more

}  // namespace

Result<std::optional<BadField>> parse_torch_row(std::string_view line, const std::string& name,
                                                std::uint64_t line_number, TorchRow& row) {
  auto value = format::parse_json(without_comma(line), name, line_number);
  if (!value) return std::move(value).error();

  ArrayRow array(line, *value);
  const auto number = [&](std::size_t index, std::string_view what, std::string_view expected) {
    return array.number(index, what, expected, [&](const JsonValue& said) {
      auto positive = index == 1            ? address_in(said)
                      : index == kTorchTime ? time_in(said)
                                            : said.as_u64();
      if (const auto any = said.as_i64(); !positive && any && what == "stream")
        positive = static_cast<std::uint64_t>(*any);
      return positive;
    });
  };
  const auto element = [&](std::size_t index) { return array.element(index); };

  const auto word = element(0) != nullptr ? element(0)->as_string().value_or("") : "";
  const auto* const found = std::find(kTorchActionNames.begin(), kTorchActionNames.end(), word);
  if (found == kTorchActionNames.end()) {
    array.refuse(0, "action",
                 "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
                 "segment_unmap, oom or snapshot");
    return array.bad();
  }
  row.action = static_cast<TorchAction>(found - kTorchActionNames.begin());
  const auto may_lack_address =
      row.action == TorchAction::oom || row.action == TorchAction::snapshot;
  row.has_address = !(may_lack_address && element(1) != nullptr && element(1)->is_null());
  if (row.has_address) row.address = number(1, "address", "an address");
  row.size = number(2, "size", "a count of bytes");
  row.stream = number(3, "stream", "a stream's handle");
  row.has_time = element(kTorchTime) != nullptr;  // PyTorch 2.2 had no times
  row.time_us = row.has_time ? number(kTorchTime, "time", "microseconds") : 0;
  return array.bad();
}

}  // namespace emm::trace
