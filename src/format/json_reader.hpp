#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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
/// Reads a text in memory that begins at line `first_line` of what `name` names.
Status read_json(std::string_view text, JsonHandler& handler, const std::string& name,
                 std::uint64_t first_line = 1);

}  // namespace emm::format
