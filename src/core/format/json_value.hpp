#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/json_reader.hpp"

namespace emm::format {

/// A JSON value in memory with its position in the text, for error messages. It holds one line, one
/// event of a document, a header, or one small file.
struct JsonValue {
  enum class Type : std::uint8_t { null, boolean, number, string, array, object };
  struct Member;

  Type type = Type::null;
  bool boolean = false;
  JsonNumber::Kind number_kind = JsonNumber::Kind::unsigned_integer;
  JsonPosition at{};
  std::uint64_t number = 0;         ///< An integer; a negative one as its two's complement.
  std::string text{};               ///< A string; for a number that is not unsigned, its spelling.
  std::vector<JsonValue> elements;  ///< Empty unless this is an array.
  std::vector<Member> members;      ///< In the order of the text; empty unless this is an object.

  bool is_null() const noexcept { return type == Type::null; }
  bool is_unsigned() const noexcept {
    return type == Type::number && number_kind == JsonNumber::Kind::unsigned_integer;
  }

  /// These return nothing if the value has another type or does not fit.
  std::optional<bool> as_bool() const noexcept;
  std::optional<std::uint64_t> as_u64() const noexcept;
  std::optional<std::int64_t> as_i64() const noexcept;
  std::optional<double> as_double() const noexcept;  ///< Takes any number.
  std::optional<std::string_view> as_string() const noexcept;
  /// The last member with that name; null if there is none.
  const JsonValue* find(std::string_view key) const noexcept;
};

struct JsonValue::Member {
  std::string key;
  JsonPosition at;
  JsonValue value{};
};

/// The string member with that name; "" if there is none.
std::string text_of(const JsonValue& object, std::string_view key);
/// The unsigned integer member with that name; 0 if there is none.
std::uint64_t count_of(const JsonValue& object, std::string_view key);

/// The most values in one JsonValue, which bounds it to 200 MB.
inline constexpr std::size_t kJsonValuesMax = std::size_t{1} << 20;

/// Builds the values of a JSON text. A handler of several values takes each in on_value(). A
/// parse_error ends a value that nests deeper than 200 or has more than kJsonValuesMax values.
class JsonBuilder : public JsonHandler {
 public:
  explicit JsonBuilder(const std::string& source) : source_(source) {}

  JsonValue& root() noexcept { return root_; }

  Status on_null(JsonPosition at) override;
  Status on_bool(bool value, JsonPosition at) override;
  Status on_number(const JsonNumber& number, JsonPosition at) override;
  Status on_string(std::string_view value, JsonPosition at) override;
  Status on_key(std::string_view key, JsonPosition at) override;
  Status on_begin_object(JsonPosition at) override { return open(JsonValue::Type::object, at); }
  Status on_begin_array(JsonPosition at) override { return open(JsonValue::Type::array, at); }
  Status on_end_object(JsonPosition) override { return close(); }
  Status on_end_array(JsonPosition) override { return close(); }

 protected:
  /// Called when root() is whole.
  virtual Status on_value() { return {}; }
  /// Starts another value.
  void clear();
  std::size_t depth() const noexcept { return open_.size(); }
  /// The number of values in root().
  std::size_t values() const noexcept { return values_; }
  /// Fails with parse_error if root() and `before` other values are more than kJsonValuesMax.
  Status check_count(JsonPosition at, std::size_t before = 0) const;
  const std::string& source() const noexcept { return source_; }

 private:
  JsonValue& place(JsonValue::Type type, JsonPosition at);
  Status placed(JsonPosition at);
  Status open(JsonValue::Type type, JsonPosition at);
  Status close();

  const std::string& source_;
  JsonValue root_;
  std::size_t values_ = 0;
  std::vector<JsonValue*> open_;  // never dangles, as a container grows only while it is the last
};

/// Reads one value from memory. Errors are those of read_json() and JsonBuilder; `name` and `line`
/// are for their messages.
Result<JsonValue> parse_json(std::string_view text, const std::string& name = "<json>",
                             std::uint64_t line = 1);
/// Appends the value as JSON.
void append_json(std::string& out, const JsonValue& value);

}  // namespace emm::format
