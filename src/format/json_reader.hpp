#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"

namespace emm::format {

/// A place in a text, both counted from 1; the column in bytes.
struct JsonPosition {
  std::uint64_t line = 1;
  std::uint64_t column = 1;
  bool operator==(const JsonPosition&) const = default;
};

/// A number as it was written.
struct JsonNumber {
  enum class Kind : std::uint8_t {
    unsigned_integer,  ///< Digits alone, at most 2^64-1: `value` is exact.
    negative,          ///< A minus and digits, down to -2^63: `negative` is exact.
    other,             ///< A fraction, an exponent, or an integer out of range: `text` only.
  };
  Kind kind = Kind::unsigned_integer;
  std::uint64_t value = 0;
  std::int64_t negative = 0;
  std::string_view text{};
};

/// Takes a JSON text as it is read. Positions are where a token begins. Views live until the
/// function returns. The first error that a function returns ends the reading and is its result.
/// Keys may repeat: that is for the handler to judge.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual Status on_null(JsonPosition at) = 0;
  virtual Status on_bool(bool value, JsonPosition at) = 0;
  virtual Status on_number(const JsonNumber& number, JsonPosition at) = 0;
  virtual Status on_string(std::string_view value, JsonPosition at) = 0;
  virtual Status on_key(std::string_view key, JsonPosition at) = 0;
  virtual Status on_begin_object(JsonPosition at) = 0;
  virtual Status on_end_object(JsonPosition at) = 0;
  virtual Status on_begin_array(JsonPosition at) = 0;
  virtual Status on_end_array(JsonPosition at) = 0;
  /// The text ends inside a value. The answer is the result of the reading; without an override it
  /// is the error "run.json:7:12: cut short inside a JSON value".
  virtual Status on_torn(const std::string& name, JsonPosition at);
};

/// Reads one JSON value and whatever space surrounds it, in memory bounded by its longest string
/// and its depth. Errors: the source's, the handler's, and parse_error as "run.json:7:12: not JSON:
/// ...".
Status read_json(ByteSource& source, JsonHandler& handler);
/// The same of a text in memory that begins at line `first_line` of what `name` names.
Status read_json(std::string_view text, JsonHandler& handler, const std::string& name,
                 std::uint64_t first_line = 1);

/// A JSON value in memory: for one line, or one small file.
class JsonValue {
 public:
  enum class Type : std::uint8_t { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;
  Type type() const noexcept { return type_; }
  bool is_null() const noexcept { return type_ == Type::null; }

  /// Nothing where the value is of another type, or does not fit.
  std::optional<bool> as_bool() const noexcept;
  std::optional<std::uint64_t> as_u64() const noexcept;
  std::optional<std::int64_t> as_i64() const noexcept;
  std::optional<double> as_double() const noexcept;  ///< Of any number.
  std::optional<std::string_view> as_string() const noexcept;

  /// Empty of other types.
  const std::vector<JsonValue>& elements() const noexcept { return elements_; }
  const std::vector<Member>& members() const noexcept {
    return members_;
  }  ///< In the order of the text.
  /// The last member of that name, null where there is none.
  const JsonValue* find(std::string_view key) const noexcept;

 private:
  friend class JsonBuilder;
  Type type_ = Type::null;
  bool negative_ = false;     // number_ is the two's complement of a negative integer
  bool fractional_ = false;   // text_ has the number
  std::uint64_t number_ = 0;  // also the boolean
  std::string text_;
  std::vector<JsonValue> elements_;
  std::vector<Member> members_;
};

/// One value, from memory. Errors are parse_error as of read_json; `name` and `line` are for their
/// words. Nesting deeper than 200 and more than kJsonValuesMax values are errors too.
Result<JsonValue> parse_json(std::string_view text, const std::string& name = "<json>",
                             std::uint64_t line = 1);

/// As many values as a piece of JSON may hold that is in memory whole: it is then below 200 MB. A
/// parse_error for one that holds more.
inline constexpr std::size_t kJsonValuesMax = std::size_t{1} << 20;
Error too_many_json_values(const std::string& name, JsonPosition at);

}  // namespace emm::format
