#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::format {

/// Appends `value` as a JSON string with its quotes. Escapes control characters, quotes and
/// backslashes, and replaces each byte that is not UTF-8 by U+FFFD, so that the result is always
/// JSON.
void append_json_string(std::string& out, std::string_view value);

/// Appends JSON to a string. Members keep the order of the calls; the writer sets commas, and no
/// spaces unless `indent` asks for lines. The calls must describe a JSON value: in an object each
/// value has a key before it, and nowhere else.
///
///   JsonWriter json(out);
///   json.begin_object().member("events",
///   count).key("outcomes").begin_array().value("ok").end_array().end_object();
///
/// Brackets nest to a depth of 256.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out, unsigned indent = 0) : out_(&out), indent_(indent) {}

  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool value);
  JsonWriter& value(
      double number);  ///< The shortest form that reads back the same; null if it is not finite.
  JsonWriter& value(std::uint64_t number);
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(std::uint32_t number) { return value(std::uint64_t{number}); }
  JsonWriter& value(std::int32_t number) { return value(std::int64_t{number}); }
  JsonWriter& null() { return raw("null"); }
  template <class T>
  JsonWriter& value(const std::optional<T>& of) {  ///< null if there is none.
    return of ? value(*of) : null();
  }
  JsonWriter& raw(std::string_view json);  ///< Appends a value that is already JSON.

  template <class T>
  JsonWriter& member(std::string_view name, const T& of) {
    return key(name).value(of);
  }

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  void separate();
  void new_line();

  static constexpr std::size_t kDepthMax = 256;  // open brackets; our own documents have few

  std::string* out_;
  unsigned indent_;
  std::size_t depth_ = 0;            // the number of open brackets
  std::bitset<kDepthMax> filled_{};  // for each open bracket: does it have a value yet
  bool after_key_ = false;
};

}  // namespace emm::format
