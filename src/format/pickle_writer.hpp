#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.hpp"
#include "format/byte_sink.hpp"

namespace emm::format {

/// Writes a pickle of protocol 4, as Python's own pickler does, opcode by opcode: what the calls
/// describe must be a value. Strings that are the same are one object. What is written goes to the
/// sink in larger pieces; end() says whether all of it went well.
class PickleWriter {
 public:
  using Memo = std::uint32_t;

  explicit PickleWriter(ByteSink& out);

  /// An empty container, under a number by which again() puts the same object once more.
  Memo dict() { return container('}'); }
  Memo list() { return container(']'); }
  void again(Memo memo);
  void mark() { out_ += '('; }
  void append() { out_ += 'a'; }   ///< The last value to the list before it.
  void appends() { out_ += 'e'; }  ///< What follows the mark, to the list before it.
  void setitems() {
    out_ += 'u';
  }  ///< The keys and values that follow the mark, to the dict before it.
  void pair() { out_ += '\x86'; }  ///< The last two values, as a tuple.

  void text(std::string_view value);
  void text_once(std::string_view value);  ///< One that does not come again: it is not remembered.
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

  /// Passes on what has gathered, if it is much.
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
