#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/pickle.hpp"
#include "format/pickle_input.hpp"
#include "format/pickle_store.hpp"

namespace emm::format {

/// The machine that executes a pickle, without the opcodes that run code. For one reading; see
/// read_pickle().
class PickleReader {
 public:
  PickleReader(ByteSource& source, const ReadPickleOptions& options) noexcept
      : source_(source), options_(options), input_(source), store_(*pickle_.store_) {}

  Result<Pickle> read() &&;

 private:
  enum class Step : std::uint8_t { go_on, stop, ends, refused };

  Step protocol();
  Step run();
  void run_ahead();
  Step take(std::uint8_t opcode);
  Step push(PickleValue value) {
    stack_.push_back(value);
    return Step::go_on;
  }
  Step push_container(PickleValue::Type type);
  Step push_unsigned(std::size_t bytes);
  Step push_signed32();
  Step push_long(std::size_t length_bytes);
  /// Pushes an opaque value for bytes that follow their length, and skips them.
  Step push_opaque(std::size_t length_bytes);
  Step push_opaque_of(std::uint64_t length);
  /// GLOBAL pushes a stand-in for a function that is known to be harmless; REDUCE does not call it.
  Step push_global();
  Step push_stack_global();
  Step push_maker(std::string_view opcode, std::string_view module, std::string_view name);
  Step reduce();
  /// Returns false if the file ends. A line that is longer than `most` is cut.
  bool read_line(std::string& line, std::size_t most = 256);
  Step push_integer_line();
  Step push_float_line();
  Step push_string_line(bool is_quoted);
  Step push_float();
  Step push_string(std::size_t length_bytes);
  Step push_tuple(std::size_t count);
  Step push_marked_tuple();
  Step push_marked_container(PickleValue::Type type);
  Step memoize(std::uint64_t index);
  Step put(std::size_t bytes);
  Step get(std::size_t bytes);
  Step recall(std::uint64_t index);
  Step by_line(bool puts);  ///< PUT and GET, whose index is a line.
  Step pop(bool to_mark);
  Step append();
  Step append_marked();
  Step set_item();
  Step set_items_marked();

  /// Gets the values above the last mark and removes the mark.
  bool marked(std::span<const PickleValue>& values);
  Step underflow() { return refuse("the stack is empty", "a value that the opcode takes"); }
  Step within_limits();
  void mend();

  /// The parse_error "run.pickle: byte 1841: the file ends inside the pickle: expected STOP".
  Error wrong(std::string_view what, std::string_view expected) const;
  Step refuse(std::string_view what, std::string_view expected);

  ByteSource& source_;
  ReadPickleOptions options_;
  PickleInput input_;
  Pickle pickle_;
  PickleStore& store_;
  BlockRow<PickleValue, 15> memo_;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::uint64_t opcode_at_ = 0;
  Status refused_;
};

}  // namespace emm::format
