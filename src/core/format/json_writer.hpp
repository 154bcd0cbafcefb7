#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/members.hpp"

namespace emm::format {

/// Appends `value` as a JSON string with its quotes. Escapes control characters, quotes and
/// backslashes, and replaces each byte that is not UTF-8 by U+FFFD, so that the result is always
/// JSON.
void append_json_string(std::string& out, std::string_view value);

class JsonWriter;

/// A struct that has a function of its own, in its namespace, which writes its members into the
/// open object. It is for what a list of members (EMM_MEMBERS_OF) cannot say.
template <class T>
concept WritesMembers = requires(JsonWriter& json, const T& of) {
  write_members(json, of);
};

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
  template <class T>
  requires std::is_enum_v<T> JsonWriter& value(T of) {  ///< Its name(), found in its namespace.
    return value(name(of));
  }
  template <class T>
  requires WritesMembers<T> || Listed<T> JsonWriter& value(const T& of) {  ///< An object.
    begin_object();
    if constexpr (WritesMembers<T>)
      write_members(*this, of);
    else
      members(of);
    return end_object();
  }
  template <class T>
  requires requires(const T& all) { all.begin() != all.end(); }
  JsonWriter& value(const T& all) {  ///< An array of its elements.
    begin_array();
    for (const auto& each : all) value(each);
    return end_array();
  }
  JsonWriter& raw(std::string_view json);  ///< Appends a value that is already JSON.

  template <class T>
  JsonWriter& member(std::string_view name, const T& of) {
    return key(name).value(of);
  }
  /// Writes null unless `known`.
  template <class T>
  JsonWriter& member_or_null(std::string_view name, bool known, const T& of) {
    return known ? member(name, of) : key(name).null();
  }
  /// Writes the listed members of a struct into the open object.
  template <Listed T>
  JsonWriter& members(const T& of) {
    std::apply([&](const auto&... each) { (member(each.name, of.*each.at), ...); },
               members_of(&of));
    return *this;
  }

  /// A member that is an object, into which `write()` writes.
  template <class Write>
  JsonWriter& object(std::string_view name, const Write& write) {
    key(name).begin_object();
    write();
    return end_object();
  }
  /// The same with `write(*of)`, or null if there is none.
  template <class T, class Write>
  JsonWriter& object(std::string_view name, const std::optional<T>& of, const Write& write) {
    return of ? object(name, [&] { write(*of); }) : key(name).null();
  }
  /// A member that is an array of an object for each element, into which `write(element)` writes.
  template <class All, class Write>
  JsonWriter& objects(std::string_view name, const All& all, const Write& write) {
    key(name).begin_array();
    for (const auto& each : all) {
      begin_object();
      write(each);
      end_object();
    }
    return end_array();
  }
  /// A member that is an array of `value_of(element)` for each element.
  template <class All, class Value>
  JsonWriter& values(std::string_view name, const All& all, const Value& value_of) {
    key(name).begin_array();
    for (const auto& each : all) value(value_of(each));
    return end_array();
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

/// The JSON of an answer: one object, whose first member is its schema.
class JsonAnswer : public JsonWriter {
 public:
  explicit JsonAnswer(std::string_view schema, unsigned indent = 0) : JsonWriter(text_, indent) {
    begin_object().member("schema", schema);
  }
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;

  /// Ends the object, and returns its text and a newline.
  std::string finish() {
    end_object();
    return std::move(text_) + '\n';
  }

 private:
  std::string text_;
};

}  // namespace emm::format
