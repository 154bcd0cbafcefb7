#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.hpp"
#include "format/byte_sink.hpp"

namespace emm::format {

/// Writes a pickle of protocol 4 opcode by opcode, in the form of Python's own pickler. The calls
/// must describe a value. Equal strings become one object. The sink gets the bytes in large pieces;
/// end() tells whether all writes succeeded.
class PickleWriter {
 public:
  using Memo = std::uint32_t;

  explicit PickleWriter(ByteSink& out);

  /// Writes an empty container. again() with the returned number refers to the same object.
  Memo dict() { return container('}'); }
  Memo list() { return container(']'); }
  void again(Memo memo);
  void mark() { out_ += '('; }
  void append() { out_ += 'a'; }   ///< Appends the last value to the list before it.
  void appends() { out_ += 'e'; }  ///< Appends the values after the mark to the list before it.
  void setitems() {
    out_ += 'u';
  }  ///< Adds the keys and values after the mark to the dict before it.
  void pair() { out_ += '\x86'; }  ///< Makes a tuple of the last two values.

  void text(std::string_view value);
  void text_once(
      std::string_view value);  ///< For a string that does not come again: it is not remembered.
  void number(std::uint64_t value);
  void negative(std::int32_t value);
  void real(double value);
  void none() { out_ += 'N'; }
  void truth(bool value) { out_ += value ? '\x88' : '\x89'; }
  template <class Value>
  void member(std::string_view key, const Value& value) {
    text(key);
    if constexpr (std::is_same_v<Value, bool>) {
      truth(value);
    } else if constexpr (std::is_integral_v<Value>) {
      number(static_cast<std::uint64_t>(value));
    } else {
      text(value);
    }
  }

  /// Passes the buffer to the sink if it is large.
  Status flush_some();
  Status end();

 private:
  Memo container(char opcode) {
    out_ += opcode;
    out_ += '\x94';
    return memos_++;
  }
  void little(std::uint64_t value, unsigned bytes);

  ByteSink& sink_;
  std::string out_;
  std::map<std::string, Memo, std::less<>> texts_;
  Memo memos_ = 0;
};

}  // namespace emm::format
