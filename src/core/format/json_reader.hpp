#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "format/byte_source.hpp"

namespace emm::format {

/// A place in a text. Line and column count from 1; the column counts bytes.
struct JsonPosition {
  std::uint64_t line = 1;
  std::uint64_t column = 1;
  bool operator==(const JsonPosition&) const = default;
};

/// A number as the text spells it.
struct JsonNumber {
  enum class Kind : std::uint8_t {
    unsigned_integer,  ///< Only digits, at most 2^64-1: `value` is exact.
    negative,          ///< A minus and digits, down to -2^63: `negative` is exact.
    other,             ///< A fraction, an exponent, or an integer out of range: only `text` is set.
  };
  Kind kind = Kind::unsigned_integer;
  std::uint64_t value = 0;
  std::int64_t negative = 0;
  std::string_view text{};
};

/// Receives a JSON text while it is read. Positions are where a token begins. Views live until the
/// function returns. The first error that a function returns ends the reading and becomes its
/// result. Keys may repeat; the handler decides what that means. A value of a kind for which the
/// handler has no function is passed over.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual Status on_null(JsonPosition) { return {}; }
  virtual Status on_bool(bool, JsonPosition) { return {}; }
  virtual Status on_number(const JsonNumber&, JsonPosition) { return {}; }
  virtual Status on_string(std::string_view, JsonPosition) { return {}; }
  virtual Status on_key(std::string_view key, JsonPosition at) = 0;
  virtual Status on_begin_object(JsonPosition at) = 0;
  virtual Status on_end_object(JsonPosition at) = 0;
  virtual Status on_begin_array(JsonPosition at) = 0;
  virtual Status on_end_array(JsonPosition at) = 0;
  /// Called if the text ends inside a value. The answer becomes the result of the reading; the
  /// default is the error "run.json:7:12: cut short inside a JSON value".
  virtual Status on_torn(const std::string& name, JsonPosition at);
};

/// Reads one JSON value with space around it. Memory is bounded by the longest string and the
/// depth. Errors: the source's, the handler's, and parse_error, worded "run.json:7:12: not JSON:
/// ...".
Status read_json(ByteSource& source, JsonHandler& handler);
/// Reads a text in memory. It begins at line `first_line` of the file `name`.
Status read_json(std::string_view text, JsonHandler& handler, const std::string& name,
                 std::uint64_t first_line = 1);

}  // namespace emm::format
