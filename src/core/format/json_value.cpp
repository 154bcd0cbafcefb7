#include "format/json_value.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "format/json_writer.hpp"

namespace emm::format {
namespace {

constexpr std::size_t kRowValues = 8;  // that stand on one line where all are plain

void write(JsonWriter& json, const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::null:
      json.null();
      return;
    case JsonValue::Type::boolean:
      json.value(value.boolean);
      return;
    case JsonValue::Type::string:
      json.value(value.text);
      return;
    case JsonValue::Type::number:
      if (value.is_unsigned()) {
        json.value(value.number);
      } else {
        json.raw(value.text);
      }
      return;
    case JsonValue::Type::array:
      json.begin_array();
      for (const auto& element : value.elements) write(json, element);
      json.end_array();
      return;
    case JsonValue::Type::object:
      json.begin_object();
      for (const auto& member : value.members) {
        json.key(member.key);
        write(json, member.value);
      }
      json.end_object();
      return;
  }
}

}  // namespace

std::optional<bool> JsonValue::as_bool() const noexcept {
  if (type != Type::boolean) return std::nullopt;
  return boolean;
}

std::optional<std::uint64_t> JsonValue::as_u64() const noexcept {
  if (!is_unsigned()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> JsonValue::as_i64() const noexcept {
  if (type != Type::number || number_kind == JsonNumber::Kind::other) return std::nullopt;
  if (is_unsigned() && number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::optional<double> JsonValue::as_double() const noexcept {
  if (type != Type::number) return std::nullopt;
  if (number_kind == JsonNumber::Kind::other) return text::to_double(text);
  return is_unsigned() ? static_cast<double>(number)
                       : static_cast<double>(static_cast<std::int64_t>(number));
}

std::optional<std::string_view> JsonValue::as_string() const noexcept {
  if (type != Type::string) return std::nullopt;
  return text;
}

const JsonValue* JsonValue::find(std::string_view key) const noexcept {
  const auto found = std::find_if(members.rbegin(), members.rend(),
                                  [&](const auto& member) { return member.key == key; });
  return found == members.rend() ? nullptr : &found->value;
}

void JsonBuilder::clear() {
  root_ = JsonValue();
  values_ = 0;
  open_.clear();
}

Status JsonBuilder::check_count(JsonPosition at, std::size_t before) const {
  if (before + values_ <= kJsonValuesMax) return {};
  return fail(Errc::parse_error, "{}:{}:{}: more than {} values in one: expected less", source_,
              at.line, at.column, kJsonValuesMax);
}

JsonValue& JsonBuilder::place(JsonValue::Type type, JsonPosition at) {
  ++values_;
  auto* made = &root_;
  if (!open_.empty()) {
    auto& in = *open_.back();
    if (in.type == JsonValue::Type::object) {
      made = &in.members.back().value;
    } else {
      // A recording's row has a few elements, so one allocation suffices for all.
      if (open_.size() == 1 && in.elements.empty()) in.elements.reserve(kRowValues);
      made = &in.elements.emplace_back();
    }
  }
  made->type = type;
  made->at = at;
  return *made;
}

Status JsonBuilder::placed(JsonPosition at) {
  if (auto few = check_count(at); !few) return few;
  return depth() == 0 ? on_value() : Status();
}

Status JsonBuilder::open(JsonValue::Type type, JsonPosition at) {
  constexpr std::size_t kDepth = 200;  // since writing and destroying a value recurse
  if (open_.size() == kDepth) {
    return fail(Errc::parse_error, "{}:{}:{}: JSON nested deeper than {}: expected less", source_,
                at.line, at.column, kDepth);
  }
  auto& made = place(type, at);
  open_.push_back(&made);
  return check_count(at);
}

Status JsonBuilder::close() {
  open_.pop_back();
  return depth() == 0 ? on_value() : Status();
}

Status JsonBuilder::on_null(JsonPosition at) {
  place(JsonValue::Type::null, at);
  return placed(at);
}

Status JsonBuilder::on_bool(bool value, JsonPosition at) {
  place(JsonValue::Type::boolean, at).boolean = value;
  return placed(at);
}

Status JsonBuilder::on_number(const JsonNumber& number, JsonPosition at) {
  auto& made = place(JsonValue::Type::number, at);
  made.number_kind = number.kind;
  made.number = number.kind == JsonNumber::Kind::negative
                    ? static_cast<std::uint64_t>(number.negative)
                    : number.value;
  if (!made.is_unsigned()) made.text = number.text;
  return placed(at);
}

Status JsonBuilder::on_string(std::string_view value, JsonPosition at) {
  place(JsonValue::Type::string, at).text = value;
  return placed(at);
}

Status JsonBuilder::on_key(std::string_view key, JsonPosition at) {
  auto& in = *open_.back();
  if (open_.size() == 1 && in.members.empty()) in.members.reserve(kRowValues);
  in.members.push_back({.key = std::string(key), .at = at});
  return {};
}

Result<JsonValue> parse_json(std::string_view text, const std::string& name, std::uint64_t line) {
  JsonBuilder builder(name);
  if (auto read = read_json(text, builder, name, line); !read) return read.error();
  return std::move(builder.root());
}

std::string text_of(const JsonValue& object, std::string_view key) {
  const auto* const member = object.find(key);
  return std::string(member != nullptr ? member->as_string().value_or("") : "");
}

std::uint64_t count_of(const JsonValue& object, std::string_view key) {
  const auto* const member = object.find(key);
  return member != nullptr ? member->as_u64().value_or(0) : 0;
}

void append_json(std::string& out, const JsonValue& value) {
  JsonWriter json(out);
  write(json, value);
}

}  // namespace emm::format
