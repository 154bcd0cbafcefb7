#include "exchange/importers/cupy_row.hpp"

#include "exchange/importers/json_row.hpp"
#include "trace/field.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kBytes = "a count of bytes";
constexpr std::string_view kAddress = "an address";
constexpr std::string_view kTime = "nanoseconds";
constexpr std::string_view kDevice = "a device's number";
constexpr std::string_view kStream = "a stream's handle";

std::optional<BadField> parse_array(std::string_view line, const JsonValue& value, CupyRow& row) {
  constexpr std::string_view kActions = "dev_alloc, alloc, free, free_all_blocks or oom";
  ArrayRow array(line, value);
  const auto number = [&](std::size_t index, std::string_view what, std::string_view expected) {
    return array.number(index, what, expected, [&](const JsonValue& said) {
      return expected == kAddress ? address_in(said)
             : expected == kTime  ? time_in(said)
                                  : said.as_u64();
    });
  };
  const auto stream = [&](std::size_t index) {  // 0 if the row is too short
    return array.element(index) == nullptr ? 0 : number(index, "stream", kStream);
  };
  const auto action = array.word(0, "action", kActions);
  if (action == "dev_alloc") {
    row.action = CupyAction::source;
  } else if (action == "alloc") {
    row.action = CupyAction::alloc;
  } else if (action == "free") {
    row.action = CupyAction::free;
  } else if (action == "free_all_blocks" || action == "oom") {
    row.action = action == "oom" ? CupyAction::oom : CupyAction::trim;
    row.time_ns = number(1, "time", kTime);
    row.has_time = true;
    row.stream = stream(2);
    return array.bad();
  } else {
    array.refuse(0, "action", kActions);
    return array.bad();
  }
  row.pointer = number(1, "pointer", kAddress);
  row.size = number(2, "size", kBytes);
  const auto device = number(3, "device", kDevice);
  if (device > kDeviceMax) array.refuse(3, "device", kDevice);
  row.device = static_cast<std::uint32_t>(device);
  row.time_ns = number(4, "time", kTime);
  row.has_time = true;
  const bool rounds = row.action == CupyAction::alloc;
  row.rounded = rounds ? number(5, "rounded size", kBytes) : row.size;
  row.stream = stream(rounds ? 6 : 5);
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
