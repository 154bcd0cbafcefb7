#include <algorithm>

#include "base/text.hpp"
#include "format/json_reader.hpp"

namespace emm::format {

/// Builds a JsonValue from what a reader says.
class JsonBuilder final : public JsonHandler {
 public:
  JsonBuilder(JsonValue& root, const std::string& name) : name_(name) { open_.push_back(&root); }

  Status on_null(JsonPosition at) override {
    place();
    return count(at);
  }
  Status on_bool(bool value, JsonPosition at) override {
    auto& made = place();
    made.type_ = JsonValue::Type::boolean;
    made.number_ = value ? 1 : 0;
    return count(at);
  }
  Status on_number(const JsonNumber& number, JsonPosition at) override {
    auto& made = place();
    made.type_ = JsonValue::Type::number;
    made.negative_ = number.kind == JsonNumber::Kind::negative;
    made.fractional_ = number.kind == JsonNumber::Kind::other;
    made.number_ = made.negative_ ? static_cast<std::uint64_t>(number.negative) : number.value;
    if (made.fractional_) made.text_ = number.text;
    return count(at);
  }
  Status on_string(std::string_view value, JsonPosition at) override {
    auto& made = place();
    made.type_ = JsonValue::Type::string;
    made.text_ = value;
    return count(at);
  }
  Status on_key(std::string_view key, JsonPosition) override {
    open_.back()->members_.emplace_back(key, JsonValue());
    return {};
  }
  Status on_begin_object(JsonPosition at) override { return open(JsonValue::Type::object, at); }
  Status on_begin_array(JsonPosition at) override { return open(JsonValue::Type::array, at); }
  Status on_end_object(JsonPosition) override { return close(); }
  Status on_end_array(JsonPosition) override { return close(); }

 private:
  static constexpr std::size_t kDepth = 200;  // a destructor and a reader of the value recurse

  JsonValue& place() {
    auto& in = *open_.back();
    if (open_.size() == 1) return in;
    if (in.type_ == JsonValue::Type::object) return in.members_.back().second;
    return in.elements_.emplace_back();
  }
  Status open(JsonValue::Type type, JsonPosition at) {
    if (open_.size() > kDepth) {
      return fail(Errc::parse_error, "{}:{}:{}: JSON nested deeper than {}: expected less", name_,
                  at.line, at.column, kDepth);
    }
    auto& made = place();
    made.type_ = type;
    open_.push_back(&made);
    return count(at);
  }
  Status close() {
    open_.pop_back();
    return {};
  }
  Status count(JsonPosition at) {
    if (++values_ <= kJsonValuesMax) return {};
    return too_many_json_values(name_, at);
  }

  const std::string& name_;
  std::size_t values_ = 0;
  std::vector<JsonValue*> open_;  // a container grows only while it is the last: no pointer dangles
};

std::optional<bool> JsonValue::as_bool() const noexcept {
  if (type_ != Type::boolean) return std::nullopt;
  return number_ != 0;
}

std::optional<std::uint64_t> JsonValue::as_u64() const noexcept {
  if (type_ != Type::number || negative_ || fractional_) return std::nullopt;
  return number_;
}

std::optional<std::int64_t> JsonValue::as_i64() const noexcept {
  if (type_ != Type::number || fractional_) return std::nullopt;
  if (!negative_ && number_ > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<std::int64_t>(number_);
}

std::optional<double> JsonValue::as_double() const noexcept {
  if (type_ != Type::number) return std::nullopt;
  if (fractional_) return text::to_double(text_);
  return negative_ ? static_cast<double>(static_cast<std::int64_t>(number_))
                   : static_cast<double>(number_);
}

std::optional<std::string_view> JsonValue::as_string() const noexcept {
  if (type_ != Type::string) return std::nullopt;
  return text_;
}

const JsonValue* JsonValue::find(std::string_view key) const noexcept {
  const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                  [&](const auto& m) { return m.first == key; });
  return found == members_.rend() ? nullptr : &found->second;
}

Error too_many_json_values(const std::string& name, JsonPosition at) {
  return fail(Errc::parse_error, "{}:{}:{}: more than {} values in one: expected less", name,
              at.line, at.column, kJsonValuesMax);
}

Result<JsonValue> parse_json(std::string_view text, const std::string& name, std::uint64_t line) {
  JsonValue root;
  JsonBuilder builder(root, name);
  if (auto read = read_json(text, builder, name, line); !read) return read.error();
  return root;
}

}  // namespace emm::format
