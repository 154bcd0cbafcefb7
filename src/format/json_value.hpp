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

/// A JSON value in memory that remembers where it was written, so that an error can say so. It is
/// held for one line, one event of a document, a header, or one small file.
struct JsonValue {
  enum class Type : std::uint8_t { null, boolean, number, string, array, object };
  struct Member;

  Type type = Type::null;
  bool boolean = false;
  JsonNumber::Kind number_kind = JsonNumber::Kind::unsigned_integer;
  JsonPosition at{};
  std::uint64_t number = 0;         ///< An integer; a negative one as its two's complement.
  std::string text{};               ///< A string; a number that is not unsigned, as written.
  std::vector<JsonValue> elements;  ///< Empty unless this is an array.
  std::vector<Member> members;      ///< In the order of the text; empty unless this is an object.

  bool is_null() const noexcept { return type == Type::null; }
  bool is_unsigned() const noexcept {
    return type == Type::number && number_kind == JsonNumber::Kind::unsigned_integer;
  }

  /// Nothing where the value is of another type, or does not fit.
  std::optional<bool> as_bool() const noexcept;
  std::optional<std::uint64_t> as_u64() const noexcept;
  std::optional<std::int64_t> as_i64() const noexcept;
  std::optional<double> as_double() const noexcept;  ///< Takes any number.
  std::optional<std::string_view> as_string() const noexcept;
  /// The last member of that name, null where there is none.
  const JsonValue* find(std::string_view key) const noexcept;
};

struct JsonValue::Member {
  std::string key;
  JsonPosition at;
  JsonValue value{};
};

/// The member of that name where it is a string, else "".
std::string text_of(const JsonValue& object, std::string_view key);
/// The member of that name where it is an unsigned integer, else 0.
std::uint64_t count_of(const JsonValue& object, std::string_view key);

/// A value may hold this many values: it is then below 200 MB.
inline constexpr std::size_t kJsonValuesMax = std::size_t{1} << 20;

/// Builds the values of a JSON text. A handler of many values takes each in on_value(). Nesting
/// deeper than 200 and more than kJsonValuesMax values in one are parse_errors.
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
  /// root() is whole.
  virtual Status on_value() { return {}; }
  /// Begins another value.
  void clear();
  std::size_t depth() const noexcept { return open_.size(); }
  /// The count of values in root().
  std::size_t values() const noexcept { return values_; }
  /// parse_error where root() and `before` other values are more than kJsonValuesMax.
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
  std::vector<JsonValue*> open_;  // a container grows only while it is the last: no pointer dangles
};

/// Reads one value from memory. Errors are read_json's and JsonBuilder's; `name` and `line` are for
/// their words.
Result<JsonValue> parse_json(std::string_view text, const std::string& name = "<json>",
                             std::uint64_t line = 1);
/// Appends the value as JSON.
void append_json(std::string& out, const JsonValue& value);

}  // namespace emm::format
