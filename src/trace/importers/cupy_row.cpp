#include "trace/importers/cupy_row.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "format/json_value.hpp"
#include "trace/field.hpp"
#include "trace/importers/json_row.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kBytes = "a count of bytes";
constexpr std::string_view kAddress = "an address";
constexpr std::string_view kTime = "nanoseconds";
constexpr std::string_view kDevice = "a device's number";
constexpr std::string_view kStream = "a stream's handle";

/// ["alloc", ...]: elements hold no commas.
class ArrayRow {
 public:
  ArrayRow(std::string_view line, const JsonValue& value) noexcept : line_(line), value_(value) {}

  std::string_view word(std::size_t index, std::string_view what,
                        std::string_view expected) noexcept {
    const auto* const said = element(index);
    const auto text = said != nullptr ? said->as_string() : std::nullopt;
    if (!text) refuse(index, what, expected);
    return text.value_or(std::string_view{});
  }
  std::uint64_t number(std::size_t index, std::string_view what,
                       std::string_view expected) noexcept {
    const auto* const said = element(index);
    const auto value = said == nullptr        ? std::nullopt
                       : expected == kAddress ? address_in(*said)
                       : expected == kTime    ? time_in(*said)
                                              : said->as_u64();
    if (!value) refuse(index, what, expected);
    return value.value_or(0);
  }
  /// 0 where the row ends before it.
  std::uint64_t stream(std::size_t index) noexcept {
    return element(index) == nullptr ? 0 : number(index, "stream", kStream);
  }
  void refuse(std::size_t index, std::string_view what, std::string_view expected) noexcept {
    if (bad_) return;
    auto at = line_.find('[');
    for (auto left = index; left > 0 && at != std::string_view::npos; --left)
      at = line_.find(',', at + 1);
    at = at == std::string_view::npos ? at : line_.find_first_not_of(" \t", at + 1);
    if (at == std::string_view::npos) at = line_.size();
    auto said = line_.substr(at, std::min(line_.find_first_of(",]", at), line_.size()) - at);
    if (said.size() > 1 && said.starts_with('"') && said.ends_with('"'))
      said = said.substr(1, said.size() - 2);
    bad_ = BadField{.what = what, .value = said, .at = at, .expected = expected};
  }
  const std::optional<BadField>& bad() const noexcept { return bad_; }

 private:
  const JsonValue* element(std::size_t index) const noexcept {
    return index < value_.elements.size() ? &value_.elements[index] : nullptr;
  }

  std::string_view line_;
  const JsonValue& value_;
  std::optional<BadField> bad_;
};

std::optional<BadField> parse_array(std::string_view line, const JsonValue& value, CupyRow& row) {
  constexpr std::string_view kActions = "dev_alloc, alloc, free, free_all_blocks or oom";
  ArrayRow array(line, value);
  const auto action = array.word(0, "action", kActions);
  if (action == "dev_alloc") {
    row.action = CupyAction::source;
  } else if (action == "alloc") {
    row.action = CupyAction::alloc;
  } else if (action == "free") {
    row.action = CupyAction::free;
  } else if (action == "free_all_blocks" || action == "oom") {
    row.action = action == "oom" ? CupyAction::oom : CupyAction::trim;
    row.time_ns = array.number(1, "time", kTime);
    row.has_time = true;
    row.stream = array.stream(2);
    return array.bad();
  } else {
    array.refuse(0, "action", kActions);
    return array.bad();
  }
  row.pointer = array.number(1, "pointer", kAddress);
  row.size = array.number(2, "size", kBytes);
  const auto device = array.number(3, "device", kDevice);
  if (device > kDeviceMax) array.refuse(3, "device", kDevice);
  row.device = static_cast<std::uint32_t>(device);
  row.time_ns = array.number(4, "time", kTime);
  row.has_time = true;
  const bool rounds = row.action == CupyAction::alloc;
  row.rounded = rounds ? array.number(5, "rounded size", kBytes) : row.size;
  row.stream = array.stream(rounds ? 6 : 5);
  return array.bad();
}

std::optional<BadField> parse_hook(std::string_view line, const JsonValue& value, CupyRow& row) {
  constexpr std::string_view kHooks = "alloc, malloc or free";
  JsonRow json(line, value);
  const auto hook = json.string("hook", kHooks);
  if (hook == "alloc") {
    row.action = CupyAction::source;
  } else if (hook == "malloc") {
    row.action = CupyAction::alloc;
  } else if (hook == "free") {
    row.action = CupyAction::free;
  } else {
    json.refuse("hook", kHooks);
    return json.bad();
  }
  const auto device = json.u64("device_id", kDevice);
  if (device > kDeviceMax) json.refuse("device_id", kDevice);
  row.device = static_cast<std::uint32_t>(device);
  row.rounded = json.u64("mem_size", kBytes);
  row.size = row.action == CupyAction::alloc ? json.u64("size", kBytes) : row.rounded;
  row.pointer = json.address("mem_ptr", kAddress);
  return json.bad();
}

}  // namespace

Result<std::optional<BadField>> parse_cupy_row(std::string_view line, const std::string& name,
                                               std::uint64_t line_number, CupyRow& row) {
  auto value = format::parse_json(without_comma(line), name, line_number);
  if (!value) return std::move(value).error();
  if (value->type == JsonValue::Type::object) return parse_hook(line, *value, row);
  return parse_array(line, *value, row);
}

}  // namespace emm::trace
