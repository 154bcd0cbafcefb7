#include "format/pickle_reader.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace emm::format {
namespace {

using Type = PickleValue::Type;

/// Names and numbers are those of Python's pickletools.
enum Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinint = 'J',
  kBinint1 = 'K',
  kBinint2 = 'M',
  kNone = 'N',
  kBinunicode = 'X',
  kAppend = 'a',
  kBinget = 'h',
  kLongBinget = 'j',
  kAppends = 'e',
  kBinput = 'q',
  kLongBinput = 'r',
  kSetitem = 's',
  kTuple = 't',
  kSetitems = 'u',
  kBinfloat = 'G',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewtrue = 0x88,
  kNewfalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinunicode = 0x8c,
  kBinunicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
  kShortBinstring = 'U',
  kBinstring = 'T',
  kShortBinbytes = 'C',
  kBinbytes = 'B',
  kBinbytes8 = 0x8e,
  kBytearray8 = 0x96,
  kEmptySet = 0x8f,
  kAdditems = 0x90,
  kFrozenset = 0x91,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  // Protocol 0, which writes values as lines of text; protocol 1 keeps some of them.
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kInt = 'I',
  kLong = 'L',
  kFloat = 'F',
  kUnicode = 'V',
  kString = 'S',
  kList = 'l',
  kDict = 'd',
  kPut = 'p',
  kGet = 'g',
};

/// Opcodes that make Python call or look up something.
constexpr std::array<std::pair<std::uint8_t, std::string_view>, 13> kCalls{{
    {kGlobal, "GLOBAL"},
    {kStackGlobal, "STACK_GLOBAL"},
    {kReduce, "REDUCE"},
    {'b', "BUILD"},
    {'i', "INST"},
    {'o', "OBJ"},
    {0x81, "NEWOBJ"},
    {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
}};

/// The functions that Python calls in protocol 2, which has no opcodes for these, to make bytes and
/// sets.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPlainMakers{{
    {"_codecs", "encode"},
    {"__builtin__", "bytes"},
    {"__builtin__", "bytearray"},
    {"__builtin__", "set"},
    {"__builtin__", "frozenset"},
    {"builtins", "bytes"},
    {"builtins", "bytearray"},
    {"builtins", "set"},
    {"builtins", "frozenset"},
}};

constexpr std::string_view kPlainData = "plain data: dicts, lists, tuples, strings and numbers";

// A longer string is not a name, and a damaged file may have any length.
constexpr std::uint64_t kStringMax = std::uint64_t{16} << 20;
// 64 bits and a sign
constexpr std::uint64_t kLongMax = 9;

/// Reads eight bytes as a little-endian integer.
std::uint64_t little64(const char* from) noexcept {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i)
    value |= std::uint64_t{static_cast<std::uint8_t>(from[i])} << (8 * i);
  return value;
}

}  // namespace

Result<Pickle> read_pickle(ByteSource& source, const ReadPickleOptions& options) {
  return PickleReader(source, options).read();
}

Result<Pickle> PickleReader::read() && {
  auto step = protocol();
  if (step == Step::go_on) step = run();
  if (step == Step::ends) {
    if (auto status = input_.take_status(); !status) return std::move(status).error();
    if (!options_.partial || stack_.empty()) {
      opcode_at_ = input_.offset();
      return wrong("the file ends inside the pickle", "STOP");
    }
    mend();
  }
  if (step == Step::refused) return std::move(refused_).error();
  pickle_.root_ = stack_.front();
  pickle_.bytes_read_ = input_.offset();
  if (step == Step::stop) {
    pickle_.bytes_after_ = input_.drain();
    if (auto status = input_.take_status(); !status) return std::move(status).error();
  }
  return std::move(pickle_);
}

/// Protocols 0 and 1 do not say their number.
PickleReader::Step PickleReader::protocol() {
  std::uint8_t opcode = 0, version = 0;
  if (!input_.byte(opcode)) return Step::ends;
  const bool is_container = opcode == kMark || opcode == kEmptyList || opcode == kEmptyDict;
  if (opcode != kProto)
    return is_container
               ? take(opcode)
               : refuse("no pickle begins here", "the opcode PROTO (0x80), or a container");
  if (!input_.byte(version)) return Step::ends;
  if (version > 5) {
    return refuse(text::format("the pickle's protocol is {}", version), "one of 0 to 5");
  }
  return Step::go_on;
}

PickleReader::Step PickleReader::run() {
  std::uint64_t chunk = 0;
  for (;;) {
    if (chunk != input_.chunks()) {
      chunk = input_.chunks();
      if (const auto step = within_limits(); step != Step::go_on) return step;
    }
    run_ahead();
    opcode_at_ = input_.offset();
    std::uint8_t opcode = 0;
    if (!input_.byte(opcode)) return Step::ends;
    const auto step = take(opcode);
    if (step != Step::go_on) return step;
  }
}

/// A fast form of take() for the opcodes that a snapshot has by the hundred million. Runs while the
/// buffer holds more bytes than such an opcode has. Leaves all other opcodes and all faults to
/// take().
void PickleReader::run_ahead() {
  constexpr std::ptrdiff_t kLongest = 16;  // bytes: no opcode that is taken here is longer
  const auto at_hand = input_.at_hand();
  const auto* at = at_hand.data();
  const auto* const end = at + at_hand.size();
  const auto little32 = [](const char* from) { return static_cast<std::uint32_t>(little64(from)); };
  for (; end - at >= kLongest; input_.skip_to(at)) {
    switch (static_cast<std::uint8_t>(*at)) {
      case kBinget: {
        const std::size_t index = static_cast<std::uint8_t>(at[1]);
        if (index >= memo_.size()) return;
        stack_.push_back(memo_[index]);
        at += 2;
        break;
      }
      case kLongBinget: {
        const std::size_t index = little32(at + 1);
        if (index >= memo_.size()) return;
        stack_.push_back(memo_[index]);
        at += 5;
        break;
      }
      case kMemoize:
        if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) return;
        memo_.push(stack_.back());
        at += 1;
        break;
      case kMark:
        marks_.push_back(stack_.size());
        at += 1;
        break;
      case kBinint1:
        stack_.push_back(store_.integer(static_cast<std::uint8_t>(at[1])));
        at += 2;
        break;
      case kBinint2:
        stack_.push_back(store_.integer(static_cast<std::uint16_t>(little32(at + 1))));
        at += 3;
        break;
      case kBinint:
        stack_.push_back(store_.integer(static_cast<std::int32_t>(little32(at + 1))));
        at += 5;
        break;
      case kLong1: {
        const unsigned length = static_cast<std::uint8_t>(at[1]);
        if (length == 0 || length > 8) return;
        const auto unused =
            64 - 8 * length;  // high bits without data; shifting back extends the sign
        stack_.push_back(
            store_.integer(static_cast<std::int64_t>(little64(at + 2) << unused) >> unused));
        at += 2 + length;
        break;
      }
      case kEmptyDict:
        stack_.push_back(store_.container(Type::dict));
        at += 1;
        break;
      case kEmptyList:
        stack_.push_back(store_.container(Type::list));
        at += 1;
        break;
      case kSetitems: {
        const auto mark = marks_.empty() ? 0 : marks_.back();
        if (mark <= (marks_.size() > 1 ? marks_[marks_.size() - 2] : 0)) return;
        const auto count = stack_.size() - mark;
        if (count % 2 != 0 || store_.type(stack_[mark - 1]) != Type::dict) return;
        store_.set_items(stack_[mark - 1], {stack_.data() + mark, count});
        marks_.pop_back();
        stack_.resize(mark);
        at += 1;
        break;
      }
      case kShortBinunicode: {
        const std::size_t length = static_cast<std::uint8_t>(at[1]);
        if (static_cast<std::size_t>(end - at) < 2 + length) return;
        const auto [value, place] = store_.string(length);
        std::memcpy(place, at + 2, length);
        stack_.push_back(value);
        at += 2 + length;
        break;
      }
      default:
        return;
    }
  }
}

PickleReader::Step PickleReader::take(std::uint8_t opcode) {
  switch (opcode) {
    case kMark:
      marks_.push_back(stack_.size());
      return Step::go_on;
    case kStop:
      if (stack_.size() == 1 && marks_.empty()) return Step::stop;
      return refuse(text::format("STOP with {} values on the stack", stack_.size()), "one, whole");
    case kNone:
      return push(PickleStore::none());
    case kNewtrue:
      return push(PickleStore::boolean(true));
    case kNewfalse:
      return push(PickleStore::boolean(false));
    case kBinint:
      return push_signed32();
    case kBinint1:
      return push_unsigned(1);
    case kBinint2:
      return push_unsigned(2);
    case kLong1:
      return push_long(1);
    case kLong4:
      return push_long(4);
    case kBinfloat:
      return push_float();
    case kShortBinunicode:
    case kShortBinstring:
      return push_string(1);
    case kBinunicode:
    case kBinstring:
      return push_string(4);
    case kBinunicode8:
      return push_string(8);
    case kShortBinbytes:
      return push_opaque(1);
    case kBinbytes:
      return push_opaque(4);
    case kBinbytes8:
    case kBytearray8:
      return push_opaque(8);
    case kGlobal:
      return push_global();
    case kStackGlobal:
      return push_stack_global();
    case kReduce:
      return reduce();
    case kEmptyDict:
      return push_container(Type::dict);
    case kEmptyList:
    case kEmptySet:
      return push_container(Type::list);
    case kEmptyTuple:
      return push_tuple(0);
    case kTuple1:
      return push_tuple(1);
    case kTuple2:
      return push_tuple(2);
    case kTuple3:
      return push_tuple(3);
    case kTuple:
    case kFrozenset:
      return push_marked_tuple();
    case kAppend:
      return append();
    case kAppends:
    case kAdditems:
      return append_marked();
    case kSetitem:
      return set_item();
    case kSetitems:
      return set_items_marked();
    case kMemoize:
      return memoize(memo_.size());
    case kBinput:
      return put(1);
    case kLongBinput:
      return put(4);
    case kBinget:
      return get(1);
    case kLongBinget:
      return get(4);
    case kPop:
    case kPopMark:
      return pop(opcode == kPopMark);
    case kDup:
      return stack_.empty() ? underflow() : push(stack_.back());
    case kInt:
    case kLong:
      return push_integer_line();
    case kFloat:
      return push_float_line();
    case kUnicode:
    case kString:
      return push_string_line(opcode == kString);
    case kList:
    case kDict:
      return push_marked_container(opcode == kDict ? Type::dict : Type::list);
    case kPut:
    case kGet:
      return by_line(opcode == kPut);
    case kFrame: {  // a hint for the size of reads
      std::uint64_t length = 0;
      return input_.little(8, length) ? Step::go_on : Step::ends;
    }
    default:
      break;
  }
  for (const auto& [call, name] : kCalls) {
    if (call == opcode) return refuse(text::format("{} asks to run code", name), kPlainData);
  }
  return refuse(text::format("the opcode {}", text::hex(opcode)), kPlainData);
}

PickleReader::Step PickleReader::push_container(Type type) { return push(store_.container(type)); }

PickleReader::Step PickleReader::push_unsigned(std::size_t bytes) {
  std::uint64_t value = 0;
  if (!input_.little(bytes, value)) return Step::ends;
  return push(store_.integer(static_cast<std::int64_t>(value)));
}

PickleReader::Step PickleReader::push_signed32() {
  std::uint64_t value = 0;
  if (!input_.little(4, value)) return Step::ends;
  return push(store_.integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(value))));
}

PickleReader::Step PickleReader::push_long(std::size_t length_bytes) {
  std::uint64_t length = 0, value = 0, top = 0;
  if (!input_.little(length_bytes, length)) return Step::ends;
  if (length > kLongMax) return push_opaque_of(length);
  const auto low = length < 8 ? length : 8;
  if (!input_.little(low, value)) return Step::ends;
  if (length == kLongMax) {
    if (!input_.little(1, top)) return Step::ends;
    if (top != 0) return push_opaque_of(0);
    return push(store_.unsigned_integer(value));
  }
  if (low != 0 && low < 8 && (value >> (8 * low - 1)) != 0) value |= ~std::uint64_t{0} << (8 * low);
  return push(store_.integer(static_cast<std::int64_t>(value)));
}

PickleReader::Step PickleReader::push_opaque(std::size_t length_bytes) {
  std::uint64_t length = 0;
  return input_.little(length_bytes, length) ? push_opaque_of(length) : Step::ends;
}

PickleReader::Step PickleReader::push_opaque_of(std::uint64_t length) {
  if (!input_.skip(length)) return Step::ends;
  ++pickle_.opaque_count_;
  return push(PickleStore::opaque());
}

bool PickleReader::read_line(std::string& line, std::size_t most) {
  std::uint8_t next = 0;
  for (line.clear(); input_.byte(next); line.push_back(static_cast<char>(next))) {
    if (next == '\n' || line.size() == most) return true;
  }
  return false;
}

PickleReader::Step PickleReader::push_integer_line() {
  std::string line;
  if (!read_line(line)) return Step::ends;
  if (line == "00" || line == "01") return push(PickleStore::boolean(line == "01"));
  if (line.ends_with('L')) line.pop_back();
  const auto* const end = line.data() + line.size();
  std::int64_t value = 0;
  if (const auto read = std::from_chars(line.data(), end, value);
      read.ec == std::errc() && read.ptr == end)
    return push(store_.integer(value));
  std::uint64_t large = 0;
  if (const auto read = std::from_chars(line.data(), end, large);
      read.ec == std::errc() && read.ptr == end)
    return push(store_.unsigned_integer(large));
  if (line.empty() || line.find_first_not_of("-0123456789") != line.npos)
    return refuse("a line that is no number", "an integer");
  return push_opaque_of(0);
}

PickleReader::Step PickleReader::push_float_line() {
  std::string line;
  if (!read_line(line)) return Step::ends;
  const auto value = text::to_double(line);
  return value ? push(store_.real(*value)) : refuse("a line that is no number", "a number");
}

/// A line of UNICODE has its characters below 256 as bytes, but for escapes as \u000a. A line of
/// STRING, of Python 2, is a literal of Python in quotes.
PickleReader::Step PickleReader::push_string_line(bool is_quoted) {
  std::string line, words;
  if (!read_line(line, kStringMax)) return Step::ends;
  auto literal = std::string_view(line);
  if (is_quoted) {
    if (literal.size() < 2 || literal.front() != literal.back())
      return refuse("a string without quotes", "a literal of Python");
    literal = literal.substr(1, literal.size() - 2);
  }
  const auto escaped = [&](std::size_t at) -> std::size_t {  // digits of the escape
    if (at + 1 >= literal.size() || literal[at] != '\\') return 0;
    return literal[at + 1] == 'u'                ? 4
           : literal[at + 1] == 'U'              ? 8
           : is_quoted && literal[at + 1] == 'x' ? 2
                                                 : 0;
  };
  for (std::size_t at = 0; at < literal.size();) {
    std::uint32_t code = static_cast<std::uint8_t>(literal[at]);
    if (const auto digits = escaped(at); digits != 0) {
      const auto number = literal.substr(at + 2, digits);
      const auto read = std::from_chars(number.data(), number.data() + number.size(), code, 16);
      if (read.ec != std::errc() || read.ptr != number.data() + digits)
        return refuse("an escape without its digits", text::format("{} of them", digits));
      at += 2 + digits;
    } else if (is_quoted && code == '\\' && at + 1 < literal.size()) {
      const auto next = literal[at + 1];
      words += next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next;
      at += 2;
      continue;
    } else {
      ++at;
    }
    constexpr std::uint32_t kReplacement = 0xfffd;  // U+FFFD, for half of a surrogate pair
    const bool is_character = code < 0xd800 || (code > 0xdfff && code <= 0x10ffff);
    text::append_utf8(words, is_character ? code : kReplacement);
  }
  const auto [value, place] = store_.string(words.size());
  std::memcpy(place, words.data(), words.size());
  return push(value);
}

PickleReader::Step PickleReader::push_global() {
  std::string module, name;
  if (!read_line(module) || !read_line(name)) return Step::ends;
  return push_maker("GLOBAL", module, name);
}

PickleReader::Step PickleReader::push_stack_global() {
  const auto above = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  if (above < 2) return push_maker("STACK_GLOBAL", {}, {});
  const auto name = stack_.back(), module = stack_[stack_.size() - 2];
  const auto word = [&](PickleValue value) {
    return PickleStore::is_string(value) ? store_.string(value) : std::string_view();
  };
  stack_.resize(stack_.size() - 2);
  return push_maker("STACK_GLOBAL", word(module), word(name));
}

PickleReader::Step PickleReader::push_maker(std::string_view opcode, std::string_view module,
                                            std::string_view name) {
  for (const auto& maker : kPlainMakers) {
    if (maker.first == module && maker.second == name) return push(PickleStore::plain_maker());
  }
  return refuse(text::format("{} asks to run code", opcode), kPlainData);
}

PickleReader::Step PickleReader::reduce() {
  const auto above = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  const auto is_plain = above >= 2 && stack_[stack_.size() - 2] == PickleStore::plain_maker() &&
                        store_.type(stack_.back()) == Type::tuple;
  if (!is_plain) {
    return refuse("REDUCE asks to run code", kPlainData);
  }
  const auto& arguments = store_.container_at(PickleStore::identity(stack_.back()));
  const auto of_bytes =
      arguments.first != 0 &&
      store_.value_at(store_.run_at(arguments.first, true).begin) == PickleStore::opaque();
  stack_.resize(stack_.size() - 2);
  return of_bytes ? push(PickleStore::opaque())
                  : push_opaque_of(0);  // the bytes were counted when they were read
}

PickleReader::Step PickleReader::push_float() {
  std::uint64_t little = 0, big = 0;
  if (!input_.little(8, little)) return Step::ends;
  for (unsigned shift = 0; shift < 64; shift += 8) big = (big << 8) | ((little >> shift) & 0xff);
  return push(store_.real(std::bit_cast<double>(big)));
}

PickleReader::Step PickleReader::push_string(std::size_t length_bytes) {
  std::uint64_t length = 0;
  if (!input_.little(length_bytes, length)) return Step::ends;
  if (length > kStringMax) {
    return refuse(text::format("a string of {} bytes", length),
                  text::format("one of at most {}", kStringMax));
  }
  const auto [value, place] = store_.string(static_cast<std::size_t>(length));
  if (!input_.copy(place, static_cast<std::size_t>(length))) return Step::ends;
  return push(value);
}

PickleReader::Step PickleReader::push_tuple(std::size_t count) {
  const auto above = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  if (above < count) return underflow();
  const auto tuple = store_.container(Type::tuple);
  store_.append(tuple, {stack_.data() + stack_.size() - count, count});
  stack_.resize(stack_.size() - count);
  return push(tuple);
}

PickleReader::Step PickleReader::push_marked_tuple() {
  if (marks_.empty()) return refuse("no mark on the stack", "one that the opcode takes");
  const auto count = stack_.size() - marks_.back();
  const auto step = push_tuple(count);
  marks_.pop_back();
  return step;
}

PickleReader::Step PickleReader::push_marked_container(Type type) {
  if (marks_.empty()) return refuse("no mark on the stack", "one that the opcode takes");
  const auto mark = marks_.back();
  const std::span<const PickleValue> values(stack_.data() + mark, stack_.size() - mark);
  if (type == Type::dict && values.size() % 2 != 0) return refuse("a key without a value", "pairs");
  const auto made = store_.container(type);
  if (type == Type::dict) {
    store_.set_items(made, values);
  } else {
    store_.append(made, values);
  }
  stack_.resize(mark);
  marks_.pop_back();
  return push(made);
}

PickleReader::Step PickleReader::pop(bool to_mark) {
  const auto mark = marks_.empty() ? 0 : marks_.back();
  // POP at a mark removes the mark.
  if (to_mark || (stack_.size() == mark && !marks_.empty())) {
    if (marks_.empty()) return refuse("no mark on the stack", "one that the opcode takes");
    stack_.resize(mark);
    marks_.pop_back();
    return Step::go_on;
  }
  if (stack_.empty()) return underflow();
  stack_.pop_back();
  return Step::go_on;
}

PickleReader::Step PickleReader::by_line(bool puts) {
  std::string line;
  if (!read_line(line)) return Step::ends;
  std::uint64_t index = 0;
  const auto* const end = line.data() + line.size();
  const auto read = std::from_chars(line.data(), end, index);
  if (read.ec != std::errc() || read.ptr != end)
    return refuse("a line that is no number", "a memo index");
  return puts ? memoize(index) : recall(index);
}

PickleReader::Step PickleReader::memoize(std::uint64_t index) {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) return underflow();
  if (index == 1 && memo_.size() == 0) memo_.push(PickleStore::none());  // Python 2 counts from 1
  if (index > memo_.size()) {
    return refuse(text::format("memo index {}", index),
                  text::format("at most {}, the next one", memo_.size()));
  }
  if (index == memo_.size()) {
    memo_.push(stack_.back());
  } else {
    memo_[static_cast<std::size_t>(index)] = stack_.back();
  }
  return Step::go_on;
}

PickleReader::Step PickleReader::put(std::size_t bytes) {
  std::uint64_t index = 0;
  return input_.little(bytes, index) ? memoize(index) : Step::ends;
}

PickleReader::Step PickleReader::get(std::size_t bytes) {
  std::uint64_t index = 0;
  return input_.little(bytes, index) ? recall(index) : Step::ends;
}

PickleReader::Step PickleReader::recall(std::uint64_t index) {
  if (index >= memo_.size()) {
    return refuse(text::format("memo index {}", index),
                  text::format("one below {}, those that are set", memo_.size()));
  }
  return push(memo_[static_cast<std::size_t>(index)]);
}

PickleReader::Step PickleReader::append() {
  const auto above = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  if (above < 2) return underflow();
  const auto value = stack_.back();
  stack_.pop_back();
  if (store_.type(stack_.back()) != Type::list)
    return refuse("APPEND to what is no list", "a list");
  store_.append(stack_.back(), {&value, 1});
  return Step::go_on;
}

bool PickleReader::marked(std::span<const PickleValue>& values) {
  if (marks_.empty() || marks_.back() == 0) return false;
  const auto mark = marks_.back();
  const auto below = marks_.size() > 1 ? marks_[marks_.size() - 2] : 0;
  if (mark == below) return false;
  values = {stack_.data() + mark, stack_.size() - mark};
  marks_.pop_back();
  return true;
}

PickleReader::Step PickleReader::append_marked() {
  std::span<const PickleValue> values;
  if (!marked(values)) return refuse("no mark on the stack", "one that the opcode takes");
  const auto list = *(values.data() - 1);
  if (store_.type(list) != Type::list) return refuse("APPENDS to what is no list", "a list");
  store_.append(list, values);
  stack_.resize(stack_.size() - values.size());
  return Step::go_on;
}

PickleReader::Step PickleReader::set_item() {
  const auto above = stack_.size() - (marks_.empty() ? 0 : marks_.back());
  if (above < 3) return underflow();
  const auto dict = stack_[stack_.size() - 3];
  if (store_.type(dict) != Type::dict) return refuse("SETITEM of what is no dict", "a dict");
  store_.set_items(dict, {stack_.data() + stack_.size() - 2, 2});
  stack_.resize(stack_.size() - 2);
  return Step::go_on;
}

PickleReader::Step PickleReader::set_items_marked() {
  std::span<const PickleValue> pairs;
  if (!marked(pairs)) return refuse("no mark on the stack", "one that the opcode takes");
  const auto dict = *(pairs.data() - 1);
  if (store_.type(dict) != Type::dict) return refuse("SETITEMS of what is no dict", "a dict");
  if (pairs.size() % 2 != 0) return refuse("a key without a value", "pairs");
  store_.set_items(dict, pairs);
  stack_.resize(stack_.size() - pairs.size());
  return Step::go_on;
}

/// Limits memory to a multiple of the bytes read. A byte of an honest file becomes one or two
/// bytes, a byte of a malicious file at most about sixteen.
PickleReader::Step PickleReader::within_limits() {
  // Bytes that any pickle may take, and how many more for each byte read.
  constexpr std::uint64_t kFree = std::uint64_t{32} << 20, kTimes = 6;
  const auto held = store_.bytes() + memo_.bytes() + stack_.capacity() * sizeof(stack_[0]) +
                    marks_.capacity() * sizeof(marks_[0]);
  opcode_at_ = input_.offset();
  if (held > kFree + kTimes * opcode_at_ || !store_.fits(stack_.size())) {
    return refuse("the pickle holds more values than memory is given for", "a snapshot");
  }
  return Step::go_on;
}

/// Adds the values above each mark to the container below it, as the opcode that was cut off would
/// have done.
void PickleReader::mend() {
  pickle_.torn_ = true;
  const auto attach = [&](PickleValue to, std::span<const PickleValue> values) {
    if (store_.type(to) == Type::list) {
      store_.append(to, values);
    } else if (store_.type(to) == Type::dict) {
      store_.set_items(to, values.first(values.size() / 2 * 2));
    }
  };
  while (!marks_.empty()) {
    const auto mark = marks_.back();
    marks_.pop_back();
    const auto below = marks_.empty() ? 0 : marks_.back();
    std::span<const PickleValue> values(stack_.data() + mark, stack_.size() - mark);
    if (mark > below) {
      const auto to = stack_[mark - 1];
      // The last value of a dict may be a list whose one element was not appended yet.
      const auto odd = store_.type(to) == Type::dict && values.size() % 2 != 0 && values.size() > 2;
      if (odd && store_.type(values.back()) != Type::string)
        attach(values[values.size() - 2], values.last(1));
      attach(to, values);
    }
    stack_.resize(mark);
  }
  // Protocol 0 adds each value as soon as it is whole.
  for (; stack_.size() > 1; stack_.pop_back()) {
    const auto& top = stack_.back();
    const auto& below = stack_[stack_.size() - 2];
    if (store_.type(below) == Type::list) {
      store_.append(below, {&top, 1});
    } else if (stack_.size() > 2 && store_.type(stack_[stack_.size() - 3]) == Type::dict) {
      store_.set_items(stack_[stack_.size() - 3], {&below, 2});
      stack_.pop_back();
    }
  }
}

Error PickleReader::wrong(std::string_view what, std::string_view expected) const {
  return fail(Errc::parse_error, "{}: byte {}: {}: expected {}", source_.name(), opcode_at_, what,
              expected);
}

PickleReader::Step PickleReader::refuse(std::string_view what, std::string_view expected) {
  refused_ = wrong(what, expected);
  return Step::refused;
}

}  // namespace emm::format
