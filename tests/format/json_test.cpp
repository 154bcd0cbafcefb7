#include <gtest/gtest.h>

#include "base/text_format.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"

namespace emm::format {
namespace {

/// Writes down what it is told.
class Transcript final : public JsonHandler {
 public:
  Status on_null(JsonPosition at) override { return note("null", at); }
  Status on_bool(bool value, JsonPosition at) override {
    return note(value ? "true" : "false", at);
  }
  Status on_number(const JsonNumber& number, JsonPosition at) override {
    switch (number.kind) {
      case JsonNumber::Kind::unsigned_integer:
        return note(text::format("u{}", number.value), at);
      case JsonNumber::Kind::negative:
        return note(text::format("i{}={}", number.negative, number.text), at);
      case JsonNumber::Kind::other:
        return note(text::format("t{}", number.text), at);
    }
    return {};
  }
  Status on_string(std::string_view value, JsonPosition at) override {
    return note(text::format("'{}'", value), at);
  }
  Status on_key(std::string_view key, JsonPosition at) override {
    return note(text::format("{}:", key), at);
  }
  Status on_begin_object(JsonPosition at) override { return note("{", at); }
  Status on_end_object(JsonPosition) override { return note("}"); }
  Status on_begin_array(JsonPosition at) override { return note("[", at); }
  Status on_end_array(JsonPosition) override { return note("]"); }

  std::string said;

 private:
  Status note(std::string_view what) {
    said += said.empty() ? "" : " ";
    said += what;
    return {};
  }
  Status note(std::string_view what, JsonPosition at) {
    return note(text::format("{}@{}.{}", what, at.line, at.column));
  }
};

std::string transcript(std::string_view json) {
  Transcript handler;
  const auto read = read_json(json, handler, "x.json");
  return read ? handler.said : describe(read.error());
}

TEST(JsonReader, TellsTokensAndWhereTheyBegin) {
  EXPECT_EQ(transcript("{\"a\": 1,\n \"b\" : [true, \"x\\\"y\", null]}"),
            "{@1.1 a:@1.2 u1@1.7 b:@2.2 [@2.8 true@2.9 'x\"y'@2.15 null@2.23 ] }");
}

TEST(JsonReader, KeepsNumbersAsTheyAreWritten) {
  EXPECT_EQ(transcript("[18446744073709551615]"), "[@1.1 u18446744073709551615@1.2 ]");
  EXPECT_EQ(transcript("[18446744073709551616]"), "[@1.1 t18446744073709551616@1.2 ]");
  EXPECT_EQ(transcript("[-9223372036854775808]"),
            "[@1.1 i-9223372036854775808=-9223372036854775808@1.2 ]");
  EXPECT_EQ(transcript("[-0]"), "[@1.1 i0=-0@1.2 ]");
  EXPECT_EQ(transcript("[4.0,1e2]"), "[@1.1 t4.0@1.2 t1e2@1.6 ]");
}

TEST(JsonReader, AStreamAndATextReadTheSame) {
  const std::string json = "{\"long\": \"" + std::string(400'000, 'x') + "\", \"after\": [1, 2]}\n";
  Transcript streamed;
  const auto source = ByteSource::memory(json);

  ASSERT_TRUE(read_json(*source, streamed));

  EXPECT_EQ(streamed.said, transcript(json));
}

TEST(JsonReader, SaysWhereAndWhyItIsNotJson) {
  EXPECT_EQ(transcript("{\"a\":1]"),
            "x.json:1:7: not JSON: syntax error while parsing object - unexpected ']'; expected "
            "',' or '}'");
  EXPECT_EQ(transcript("{\"a\": nope}"),
            "x.json:1:7: not JSON: syntax error while parsing value - invalid literal");
  EXPECT_EQ(transcript("[1 22]"),
            "x.json:1:4: not JSON: syntax error while parsing array - unexpected number literal; "
            "expected ','");
  EXPECT_EQ(transcript("[007]"),
            "x.json:1:2: not JSON: syntax error while parsing array - unexpected number literal; "
            "expected ','");
  EXPECT_EQ(transcript("[\"a\nb\"]"),
            "x.json:1:4: not JSON: syntax error while parsing value - invalid string: control "
            "character U+000A (LF) "
            "must be escaped to \\u000A or \\n");
  EXPECT_EQ(transcript("[\"\xff\"]"),
            "x.json:1:3: not JSON: syntax error while parsing value - invalid string: ill-formed "
            "UTF-8 byte");
  EXPECT_EQ(transcript("{} {}"),
            "x.json:1:4: not JSON: syntax error while parsing value - unexpected '{'; expected end "
            "of input");
}

TEST(JsonReader, TellsATextThatIsCut) {
  for (const char* cut : {"", "{", "{\"a", "{\"a\":", "{\"a\":tr", "{\"a\":1", "[1,"}) {
    EXPECT_EQ(transcript(cut), text::format("x.json:1:{}: cut short inside a JSON value",
                                            std::string(cut).size() + 1))
        << cut;
  }
}

TEST(JsonReader, AnErrorOfTheSourceIsTheResult) {
  Transcript handler;
  const auto source = ByteSource::open("/proc/self/mem");  // nothing is at address 0
  ASSERT_TRUE(source);

  const auto read = read_json(**source, handler);

  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "cannot read /proc/self/mem: Input/output error");
}

TEST(JsonReader, ANulIsNoEndOfTheText) {
  using namespace std::string_view_literals;

  EXPECT_FALSE(parse_json("{\"a\":1}\0"sv));
  EXPECT_FALSE(parse_json("{\"a\":1}\0{"sv));
  EXPECT_FALSE(parse_json("[\0]"sv));
  EXPECT_TRUE(parse_json("{\"a\":1} "sv));
}

TEST(JsonReader, DeepNestingIsOnlyDeep) {
  const std::string deep(100'000, '[');
  EXPECT_EQ(transcript(deep).substr(0, 100).find("x.json:1:100001: cut short"), 0u);
}

TEST(JsonValue, HoldsMembersInOrderAndNumbersExactly) {
  const auto value = parse_json(
      R"({"z":18446744073709551615,"a":-5,"f":0.25,"s":"\u00e9","b":true,"n":null,"l":[1,[2]]})");
  ASSERT_TRUE(value);

  EXPECT_EQ(value->members.front().key, "z");
  EXPECT_EQ(value->find("z")->as_u64(), 18446744073709551615u);
  EXPECT_EQ(value->find("z")->as_i64(), std::nullopt);
  EXPECT_EQ(value->find("a")->as_i64(), -5);
  EXPECT_EQ(value->find("a")->as_u64(), std::nullopt);
  EXPECT_EQ(value->find("a")->as_double(), -5.0);
  EXPECT_EQ(value->find("f")->as_double(), 0.25);
  EXPECT_EQ(value->find("f")->as_u64(), std::nullopt);
  EXPECT_EQ(value->find("s")->as_string(), "\xc3\xa9");
  EXPECT_EQ(value->find("b")->as_bool(), true);
  EXPECT_TRUE(value->find("n")->is_null());
  ASSERT_EQ(value->find("l")->elements.size(), 2u);
  EXPECT_EQ(value->find("l")->elements[1].elements[0].as_u64(), 2u);
  EXPECT_EQ(value->find("absent"), nullptr);
}

TEST(JsonValue, RefusesWhatItsReadersWouldRecurseInto) {
  EXPECT_TRUE(parse_json(std::string(200, '[') + std::string(200, ']')));
  const auto value = parse_json(std::string(201, '['), "deep.json", 3);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().message, "deep.json:3:201: JSON nested deeper than 200: expected less");
}

TEST(JsonWriter, WritesMembersInTheOrderOfTheCalls) {
  std::string out;
  JsonWriter json(out);

  json.begin_object()
      .member("b", 2u)
      .member("a", "x")
      .key("list")
      .begin_array()
      .value(true)
      .null()
      .value(-1);
  json.end_array().key("raw").raw("{}").member("half", 0.5).end_object();

  EXPECT_EQ(out, R"({"b":2,"a":"x","list":[true,null,-1],"raw":{},"half":0.5})");
}

TEST(JsonWriter, IndentsWhereAsked) {
  std::string out;
  JsonWriter json(out, 2);

  json.begin_object().member("a", 1).key("b").begin_array().value(1).value(2).end_array();
  json.key("c").begin_array().end_array().end_object();

  EXPECT_EQ(out, "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": []\n}");
}

enum class Colour { red, blue };
std::string_view name(Colour colour) { return colour == Colour::red ? "red" : "blue"; }

struct Wheel {
  std::uint64_t bytes = 0;
  Colour colour = Colour::red;
  std::uint64_t hidden = 9;
};
EMM_MEMBERS_OF(Wheel, colour, bytes)

struct Cart {
  std::vector<Wheel> wheels{};
  std::optional<Wheel> spare{};
};
EMM_MEMBERS_OF(Cart, spare, wheels)
void write_members(JsonWriter& json, const Cart& cart) {
  json.members(cart).member("count", cart.wheels.size());
}

TEST(JsonWriter, WritesAStructAsTheListOfItsMembersSays) {
  std::string out;
  JsonWriter json(out);

  json.begin_object().member("wheel", Wheel{.bytes = 4});
  json.member("none", std::optional<Wheel>())
      .member("carts", std::vector<Cart>{{}, {{{}}, Wheel{}}});
  json.end_object();

  EXPECT_EQ(
      out,
      R"({"wheel":{"colour":"red","bytes":4},"none":null,"carts":[)"
      R"({"spare":null,"wheels":[],"count":0},)"
      R"({"spare":{"colour":"red","bytes":0},"wheels":[{"colour":"red","bytes":0}],"count":1}]})");
}

TEST(JsonWriter, MakesArraysAndObjectsOfWhatAFunctionWrites) {
  std::string out;
  JsonWriter json(out);
  const std::vector<int> numbers{1, 2};

  json.begin_object().objects("objects", numbers, [&](int each) { json.member("n", each); });
  json.values("values", numbers, [](int each) { return -each; });
  json.object("object", [&] { json.member_or_null("a", true, 1).member_or_null("b", false, 2); });
  json.object("some", std::optional(3), [&](int each) { json.member("n", each); });
  json.object("none", std::optional<int>(), [&](int each) { json.member("n", each); }).end_object();

  EXPECT_EQ(out, R"({"objects":[{"n":1},{"n":2}],"values":[-1,-2],"object":{"a":1,"b":null},)"
                 R"("some":{"n":3},"none":null})");
}

TEST(JsonAnswer, BeginsWithItsSchemaAndEndsTheObject) {
  JsonAnswer json("emmctl.some/1");

  json.member("a", 1);

  EXPECT_EQ(json.finish(), "{\"schema\":\"emmctl.some/1\",\"a\":1}\n");
}

TEST(JsonWriter, AnyBytesBecomeAStringThatIsJson) {
  std::string out;
  append_json_string(out, std::string_view("q\" b\\ \n\t\x01 \xc3\xa9 \xff \xed\xa0\x80", 18));

  EXPECT_EQ(
      out,
      "\"q\\\" b\\\\ \\n\\t\\u0001 \xc3\xa9 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_TRUE(parse_json(out));
}

}  // namespace
}  // namespace emm::format
