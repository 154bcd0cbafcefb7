#include "format/pickle.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "format/pickle_writer.hpp"

namespace emm::format {
namespace {

using namespace std::string_literals;
using Type = PickleValue::Type;

Result<Pickle> read(std::string_view bytes, bool partial = false) {
  const auto source = ByteSource::memory(bytes, "run.pickle");
  return read_pickle(*source, {.partial = partial});
}

std::string error_of(std::string_view bytes) {
  const auto pickle = read(bytes);
  return pickle ? "" : std::string(pickle.error().message);
}

/// As Python's repr(), but for what is deeper than 20.
std::string repr(const Pickle& pickle, PickleValue value, int depth = 0) {
  if (depth > 20) return "...";
  switch (pickle.type(value)) {
    case Type::absent:
      return "absent";
    case Type::none:
      return "None";
    case Type::boolean:
      return *pickle.boolean(value) ? "True" : "False";
    case Type::integer: {
      if (const auto positive = pickle.u64(value)) return text::format("{}", *positive);
      return text::format("{}", *pickle.i64(value));
    }
    case Type::real:
      return text::format("{}", *pickle.real(value));
    case Type::string:
      return text::format("'{}'", *pickle.string(value));
    default:
      break;
  }
  const auto is_dict = pickle.type(value) == Type::dict;
  std::string out(is_dict ? "{" : pickle.type(value) == Type::list ? "[" : "(");
  PickleValue element;
  auto is_key = true;
  auto first = true;
  for (auto each = pickle.elements(value); each.next(element);) {
    if (is_key && !first) out += ", ";
    first = false;
    out += repr(pickle, element, depth + 1);
    if (is_dict && is_key) out += ": ";
    if (is_dict) is_key = !is_key;
  }
  return out + (is_dict ? "}" : pickle.type(value) == Type::list ? "]" : ")");
}

std::string value_of(std::string_view bytes) {
  const auto pickle = read(bytes);
  return pickle ? repr(*pickle, pickle->root()) : std::string(pickle.error().message);
}

TEST(Pickle, ReadsEveryKindOfPlainData) {
  EXPECT_EQ(value_of("\x80\x04N."s), "None");
  EXPECT_EQ(value_of("\x80\x04\x88."s), "True");
  EXPECT_EQ(value_of("\x80\x04K\x07."s), "7");
  EXPECT_EQ(value_of("\x80\x04M\x01\x02."s), "513");
  EXPECT_EQ(value_of("\x80\x04J\xff\xff\xff\xff."s), "-1");
  EXPECT_EQ(value_of("\x80\x04\x8a\x00."s), "0");
  EXPECT_EQ(value_of("\x80\x04\x8a\x01\xfe."s), "-2");
  EXPECT_EQ(value_of("\x80\x04\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s), "9223372036854775807");
  EXPECT_EQ(value_of("\x80\x04\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."s), "-9223372036854775808");
  EXPECT_EQ(value_of("\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s),
            "18446744073709551615");
  EXPECT_EQ(value_of("\x80\x04\x8b\x02\x00\x00\x00\x01\x02."s), "513");
  EXPECT_EQ(value_of("\x80\x04G\x3f\xf8\x00\x00\x00\x00\x00\x00."s), "1.5");
  EXPECT_EQ(value_of("\x80\x04\x8c\x03"
                     "abc."s),
            "'abc'");
  EXPECT_EQ(value_of("\x80\x04X\x02\x00\x00\x00ok."s), "'ok'");
  EXPECT_EQ(value_of("\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00ok."s), "'ok'");
  EXPECT_EQ(value_of("\x80\x02]q\x00(K\x01K\x02"
                     "e."s),
            "[1, 2]");
  EXPECT_EQ(value_of("\x80\x02)."s), "()");
  EXPECT_EQ(value_of("\x80\x02K\x01K\x02K\x03\x87."s), "(1, 2, 3)");
  EXPECT_EQ(value_of("\x80\x02(K\x01K\x02t."s), "(1, 2)");
  EXPECT_EQ(value_of("\x80\x02}X\x01\x00\x00\x00"
                     "aK\x01s."s),
            "{'a': 1}");
  EXPECT_EQ(value_of("\x80\x05\x95\x09\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
                     "aK\x01\x8c\x01"
                     "bNu."s),
            "{'a': 1, 'b': None}");
}

TEST(Pickle, ReadsProtocols0And1) {
  EXPECT_EQ(
      value_of(
          "(dp0\nVa\np1\nI1\nsVneg\np2\nI-5\nsVbig\np3\nL9223372036854775813L\nsVt\np4\nI01\n"
          "sVf\np5\nI00\nsVn\np6\nNsVx\np7\nF1.5\nsVl\np8\n(lp9\nI1\na(I2\nI3\ntp10\na(tag1\nas."s),
      "{'a': 1, 'neg': -5, 'big': 9223372036854775813, 't': True, 'f': False, 'n': None, "
      "'x': 1.5, 'l': [1, (2, 3), (), 'a']}");
  EXPECT_EQ(value_of("(Vzw\xf6lf\\u000a\\u2603\\U0001d11e\nt."s),
            "('zw\u00f6lf\n\u2603\U0001d11e')");
  EXPECT_EQ(value_of("}q\x00(X\x01\x00\x00\x00"
                     "aq\x01I01\nX\x01\x00\x00\x00"
                     "bq\x02L-7L\nu."s),
            "{'a': True, 'b': -7}");
  EXPECT_EQ(value_of("(lp1\nS'it\\'s\\n\\x41'\np2\nag2\na."s), "['it's\nA', 'it's\nA']")
      << "Python 2 counts from 1";
  EXPECT_EQ(value_of("((dI1\nI2\n2l."s), "[{}, 1, 2, 2]");
  EXPECT_EQ(value_of("((VaI\nI1\ndI1\n0t."s), "({'aI': 1})");
  EXPECT_EQ(value_of("(I1\n(I2\nI3\n1t."s), "(1)");
  EXPECT_EQ(read("(L123456789012345678901234567890L\nt."s)->opaque_count(), 1u);
  const std::pair<std::string, std::string_view> kDamage[] = {
      {"(Ione\nt."s, "byte 1: a line that is no number: expected an integer"},
      {"(Fone\nt."s, "byte 1: a line that is no number: expected a number"},
      {"(lpx\n."s, "byte 2: a line that is no number: expected a memo index"},
      {"(lp5\n."s, "byte 2: memo index 5: expected at most 0, the next one"},
      {"(g0\nt."s, "byte 1: memo index 0: expected one below 0, those that are set"},
      {"(S'a\nt."s, "byte 1: a string without quotes: expected a literal of Python"},
      {"(Va\\u00g0\nt."s, "byte 1: an escape without its digits: expected 4 of them"},
      {"(I1\nd."s, "byte 4: a key without a value: expected pairs"},
      {"]l."s, "byte 1: no mark on the stack: expected one that the opcode takes"},
      {"]00."s, "byte 2: the stack is empty: expected a value that the opcode takes"},
      {"]1."s, "byte 1: no mark on the stack: expected one that the opcode takes"},
      {"(Va"s, "byte 3: the file ends inside the pickle: expected STOP"},
  };
  for (const auto& [bytes, words] : kDamage)
    EXPECT_EQ(error_of(bytes), text::format("run.pickle: {}", words)) << bytes;
}

TEST(Pickle, MendsProtocol0WhichAddsEachValueByItself) {
  const auto cut = read("(dp0\nVa\nI1\nsVl\n(lp1\n(dp2\nVx\nI5\nsVy\n"s, true);

  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->torn());
  EXPECT_EQ(repr(*cut, cut->root()), "{'a': 1, 'l': [{'x': 5}]}");
}

TEST(Pickle, NamesAnObjectThatIsSharedOnce) {
  const auto pickle = read(
      "\x80\x04](}\x94\x8c\x01xK\x05sh\x00h\x00"
      "e."s);

  ASSERT_TRUE(pickle);
  EXPECT_EQ(repr(*pickle, pickle->root()), "[{'x': 5}, {'x': 5}, {'x': 5}]");
  EXPECT_EQ(pickle->container_count(), 2u);
}

TEST(Pickle, HoldsAListThatHoldsItself) {
  const auto pickle = read(
      "\x80\x04]\x94h\x00"
      "a."s);

  ASSERT_TRUE(pickle);
  PickleValue inner;
  ASSERT_TRUE(pickle->elements(pickle->root()).next(inner));
  EXPECT_EQ(inner, pickle->root());
}

TEST(Pickle, DictsWithTheSameKeysHaveOneShape) {
  const auto pickle = read(
      "\x80\x04](}(\x8c\x01"
      "a\x94K\x01\x8c\x01"
      "b\x94K\x02u}(h\x00K\x03h\x01K\x04u"
      "}(\x8c\x01"
      "aK\x05\x8c\x01"
      "bK\x06u}(h\x01K\x07h\x00K\x08u}(h\x00K\x09h\x00K\x0au"
      "e."s);

  ASSERT_TRUE(pickle);
  EXPECT_EQ(repr(*pickle, pickle->root()),
            "[{'a': 1, 'b': 2}, {'a': 3, 'b': 4}, {'a': 5, 'b': 6}, {'b': 7, 'a': 8}, {'a': 9, "
            "'a': 10}]");
  EXPECT_EQ(pickle->shape_count(), 2u);
  std::string found;
  PickleValue dict;
  for (auto each = pickle->elements(pickle->root()); each.next(dict);) {
    found += text::format("{} ", *pickle->u64(pickle->find(dict, "a")));
    EXPECT_EQ(pickle->find(dict, "c"), PickleValue());
  }
  EXPECT_EQ(found, "1 3 5 8 10 ");
}

TEST(Pickle, AddsToADictAndAListInSeveralSteps) {
  EXPECT_EQ(value_of("\x80\x04}\x8c\x01"
                     "aK\x01s(\x8c\x01"
                     "bK\x02u."s),
            "{'a': 1, 'b': 2}");
  EXPECT_EQ(value_of("\x80\x04](K\x01"
                     "eK\x02"
                     "a(K\x03K\x04"
                     "e."s),
            "[1, 2, 3, 4]");
}

TEST(Pickle, KeepsALongListWhoseElementsComeInBatches) {
  constexpr std::uint64_t kCount = 300'000;
  std::string bytes;
  const auto sink = ByteSink::to_string(bytes);
  PickleWriter writer(*sink);
  writer.list();
  for (std::uint64_t i = 0; i < kCount; ++i) {
    if (i % 1000 == 0) writer.mark();
    if (i % 3 == 0) {
      writer.dict(), writer.mark(), writer.member("i", i),
          writer.member("name", text::format("n{}", i));
      writer.setitems();
    } else {
      writer.number(i * i * i * i);
    }
    if (i % 1000 == 999) writer.appends();
    ASSERT_TRUE(writer.flush_some());
  }
  ASSERT_TRUE(writer.end());

  const auto pickle = read(bytes);

  ASSERT_TRUE(pickle);
  EXPECT_EQ(pickle->bytes_read(), bytes.size());
  EXPECT_EQ(pickle->size(pickle->root()), kCount);
  PickleValue value;
  std::uint64_t i = 0;
  for (auto each = pickle->elements(pickle->root()); each.next(value); ++i) {
    const auto said = i % 3 == 0 ? pickle->u64(pickle->find(value, "i")) : pickle->u64(value);
    ASSERT_EQ(said, i % 3 == 0 ? i : i * i * i * i) << i;
    if (i % 3 == 0) {
      ASSERT_EQ(pickle->string(pickle->find(value, "name")), text::format("n{}", i));
    }
  }
  EXPECT_EQ(i, kCount);
}

TEST(Pickle, RefusesWhatAsksToRunCode) {
  const std::pair<std::string, std::string_view> kCalls[] = {
      {"c"s, "GLOBAL"},    {"\x93"s, "STACK_GLOBAL"},
      {"R"s, "REDUCE"},    {"b"s, "BUILD"},
      {"i"s, "INST"},      {"o"s, "OBJ"},
      {"\x81"s, "NEWOBJ"}, {"\x92"s, "NEWOBJ_EX"},
      {"P"s, "PERSID"},    {"Q"s, "BINPERSID"},
      {"\x82"s, "EXT1"},   {"\x83"s, "EXT2"},
      {"\x84"s, "EXT4"},
  };
  for (const auto& [opcode, name] : kCalls) {
    EXPECT_EQ(error_of("\x80\x04N"s + opcode + "os\nsystem\n."s),
              text::format("run.pickle: byte 3: {} asks to run code: expected plain data: dicts, "
                           "lists, tuples, strings "
                           "and numbers",
                           name));
  }
}

TEST(Pickle, PassesOverBytesAndLargeIntegersAndCountsThem) {
  const std::string kValues[] = {
      "\x8a\x0a"s + std::string(10, '\1'),  // an integer of 80 bits
      "\x8a\x09"s + std::string(9, '\1'),
      "\x8b\x0c\x00\x00\x00"s + std::string(12, '\1'),
      "C\x02"
      "ab"s,
      "B\x02\x00\x00\x00"
      "ab"s,
      "\x8e\x02\x00\x00\x00\x00\x00\x00\x00"
      "ab"s,
      "\x96\x02\x00\x00\x00\x00\x00\x00\x00"
      "ab"s,
      "c_codecs\nencode\nX\x02\x00\x00\x00"
      "abX\x06\x00\x00\x00latin1\x86R"s,  // bytes, by protocol 2
      "c__builtin__\nbytes\n)R"s,
      "c__builtin__\nset\n](K\x01"
      "e\x85R"s,
      "\x8c\x08"
      "builtins\x8c\x09"
      "bytearray\x93"
      "C\x01x\x85R"s,
  };
  for (const auto& value : kValues) {
    const auto pickle = read("\x80\x04](" + value +
                             "K\x07"
                             "e.");

    ASSERT_TRUE(pickle) << std::string(pickle.error().message);
    EXPECT_EQ(pickle->opaque_count(), 1u);
    PickleValue first, second;
    auto each = pickle->elements(pickle->root());
    ASSERT_TRUE(each.next(first) && each.next(second));
    EXPECT_EQ(pickle->type(first), PickleValue::Type::opaque);
    EXPECT_EQ(pickle->u64(first), std::nullopt);
    EXPECT_EQ(pickle->string(first), std::nullopt);
    EXPECT_EQ(pickle->u64(second), 7u);
  }
  EXPECT_EQ(value_of("\x80\x04\x8f\x94(K\x01K\x02\x90."s), "[1, 2]") << "a set";
  EXPECT_EQ(value_of("\x80\x04(K\x01K\x02\x91."s), "(1, 2)") << "a frozenset";
  EXPECT_EQ(value_of("\x80\x02U\x02ok."s), "'ok'") << "a string of Python 2";
}

TEST(Pickle, MakesNoCallThatItDoesNotKnowToBeHarmless) {
  constexpr std::string_view kCalled =
      "asks to run code: expected plain data: dicts, lists, tuples, strings and numbers";
  EXPECT_EQ(error_of("\x80\x02"
                     "cos\nsystem\n."s),
            text::format("run.pickle: byte 2: GLOBAL {}", kCalled));
  EXPECT_EQ(error_of("\x80\x02"
                     "c_codecs\ndecode\n."s),
            text::format("run.pickle: byte 2: GLOBAL {}", kCalled));
  EXPECT_EQ(error_of("\x80\x02"
                     "c_codecs\nencode\nN"
                     "R."s),
            text::format("run.pickle: byte 19: REDUCE {}", kCalled));
  EXPECT_EQ(error_of("\x80\x02X\x02\x00\x00\x00os)R."s),
            text::format("run.pickle: byte 10: REDUCE {}", kCalled));
  EXPECT_EQ(error_of("\x80\x04\x8c\x02os\x8c\x06system\x93)R."s),
            text::format("run.pickle: byte 14: STACK_GLOBAL {}", kCalled));
}

TEST(Pickle, SaysWhereDamageIs) {
  const std::pair<std::string, std::string_view> kDamage[] = {
      {""s, "byte 0: the file ends inside the pickle: expected STOP"},
      {"{}"s, "byte 0: no pickle begins here: expected the opcode PROTO (0x80), or a container"},
      {"\x80\x06N."s, "byte 0: the pickle's protocol is 6: expected one of 0 to 5"},
      {"\x80\x04N"s, "byte 3: the file ends inside the pickle: expected STOP"},
      {"\x80\x04\x8c\x05"
       "ab"s,
       "byte 6: the file ends inside the pickle: expected STOP"},
      {"\x80\x04\x8a\x05"
       "ab"s,
       "byte 6: the file ends inside the pickle: expected STOP"},
      {"\x80\x04."s, "byte 2: STOP with 0 values on the stack: expected one, whole"},
      {"\x80\x04NN."s, "byte 4: STOP with 2 values on the stack: expected one, whole"},
      {"\x80\x04](."s, "byte 4: STOP with 1 values on the stack: expected one, whole"},
      {"\x80\x04h\x00."s, "byte 2: memo index 0: expected one below 0, those that are set"},
      {"\x80\x04j\xff\xff\xff\xff."s,
       "byte 2: memo index 4294967295: expected one below 0, those that are set"},
      {"\x80\x04Nr\xff\xff\xff\xff."s,
       "byte 3: memo index 4294967295: expected at most 0, the next one"},
      {"\x80\x04\x94."s, "byte 2: the stack is empty: expected a value that the opcode takes"},
      {"\x80\x04N(\x94."s, "byte 4: the stack is empty: expected a value that the opcode takes"},
      {"\x80\x04]"
       "a."s,
       "byte 3: the stack is empty: expected a value that the opcode takes"},
      {"\x80\x04](N\x86."s, "byte 5: the stack is empty: expected a value that the opcode takes"},
      {"\x80\x04}NNNu."s, "byte 6: no mark on the stack: expected one that the opcode takes"},
      {"\x80\x04"
       "e."s,
       "byte 2: no mark on the stack: expected one that the opcode takes"},
      {"\x80\x04(N"
       "e."s,
       "byte 4: no mark on the stack: expected one that the opcode takes"},
      {"\x80\x04]((N"
       "e."s,
       "byte 6: no mark on the stack: expected one that the opcode takes"},
      {"\x80\x04t."s, "byte 2: no mark on the stack: expected one that the opcode takes"},
      {"\x80\x04}N"
       "a."s,
       "byte 4: APPEND to what is no list: expected a list"},
      {"\x80\x04}(N"
       "e."s,
       "byte 5: APPENDS to what is no list: expected a list"},
      {"\x80\x04]NNs."s, "byte 5: SETITEM of what is no dict: expected a dict"},
      {"\x80\x04](NNu."s, "byte 6: SETITEMS of what is no dict: expected a dict"},
      {"\x80\x04}(NNNu."s, "byte 7: a key without a value: expected pairs"},
      {"\x80\x04\x8b\xff\xff\xff\xff."s, "byte 8: the file ends inside the pickle: expected STOP"},
      {"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff."s,
       "byte 12: the file ends inside the pickle: expected STOP"},
      {"\x80\x02"
       "c_codecs\nenco"s,
       "byte 15: the file ends inside the pickle: expected STOP"},
      {"\x80\x04X\xff\xff\xff\xff."s,
       "byte 2: a string of 4294967295 bytes: expected one of at most 16777216"},
      {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s,
       "byte 2: a string of 18446744073709551615 bytes: expected one of at most 16777216"},
      {"\x80\x04\x98."s,
       "byte 2: the opcode 0x98: expected plain data: dicts, lists, tuples, strings and numbers"},
  };
  for (const auto& [bytes, message] : kDamage) {
    EXPECT_EQ(error_of(bytes), text::format("run.pickle: {}", message));
  }
}

TEST(Pickle, GivesUpOnAFileThatWouldFillTheMemory) {
  std::string bytes = "\x80\x04](";
  bytes.append(std::size_t{8} << 20, ']');

  const auto message = error_of(bytes + "e.");

  EXPECT_TRUE(message.ends_with(
      ": the pickle holds more values than memory is given for: expected a snapshot"))
      << message;
}

TEST(Pickle, SaysWhatFollowsItsEnd) {
  const auto pickle = read("\x80\x04N.rest"s);

  ASSERT_TRUE(pickle);
  EXPECT_EQ(pickle->bytes_read(), 4u);
  EXPECT_EQ(pickle->bytes_after(), 4u);
}

TEST(Pickle, EveryPrefixIsRefusedOrMended) {
  const auto whole =
      "\x80\x04}\x94(\x8c\x01"
      "a\x94]\x94(K\x01K\x02"
      "e\x8c\x01"
      "b]}(h\x01G\x3f\xf8\x00\x00\x00\x00"
      "\x00\x00\x8c\x01"
      "cK\x07u"
      "au."s;
  ASSERT_EQ(value_of(whole), "{'a': [1, 2], 'b': [{'a': 1.5, 'c': 7}]}");

  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto prefix = std::string_view(whole).substr(0, size);
    EXPECT_EQ(
        error_of(prefix),
        text::format("run.pickle: byte {}: the file ends inside the pickle: expected STOP", size));
    const auto mended = read(prefix, true);
    EXPECT_EQ(mended.has_value(), size > 2) << size;
    EXPECT_TRUE(!mended || mended->torn());
  }
  const auto mended = read(std::string_view(whole).substr(0, whole.size() - 3), true);
  EXPECT_EQ(repr(*mended, mended->root()), "{'a': [1, 2], 'b': [{'a': 1.5, 'c': 7}]}");
}

}  // namespace
}  // namespace emm::format
