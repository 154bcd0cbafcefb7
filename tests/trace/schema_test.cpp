// The schema and the table of rules are one thing said twice.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "format/json_value.hpp"
#include "tests/trace/trace_text.hpp"
#include "trace/field.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using Names = std::set<std::string>;

format::JsonValue schema() {
  std::ifstream file(EMM_SOURCE_DIR "/traces/emmtrace.schema.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto value = format::parse_json(text);
  EXPECT_TRUE(value) << describe(value.error());
  return value ? *std::move(value) : format::JsonValue();
}

const format::JsonValue& in(const format::JsonValue& value, std::string_view key) {
  static const format::JsonValue none;
  const auto* const found = value.find(key);
  EXPECT_NE(found, nullptr) << key;
  return found == nullptr ? none : *found;
}

Names names_of(Members members) {
  Names names;
  for (std::size_t i = 0; i < kMemberCount; ++i) {
    const auto member = static_cast<Member>(i);
    if (members.has(member) && member != Member::extension) names.emplace(name(member));
  }
  return names;
}

Names strings(const format::JsonValue& array) {
  Names names;
  for (const auto& element : array.elements) names.emplace(element.as_string().value_or("?"));
  return names;
}

Names keys(const format::JsonValue& object) {
  Names names;
  for (const auto& member : object.members) names.insert(member.key);
  return names;
}

template <class Array>
Names written(const Array& array) {
  Names names;
  for (const auto name : array) {
    if (!name.empty()) names.emplace(name);
  }
  return names;
}

TEST(Schema, EachOperationHasTheMembersOfItsRule) {
  const auto root = schema();
  const auto& branches = in(in(in(root, "$defs"), "operation"), "oneOf");
  Names seen;
  for (const auto& branch : branches.elements) {
    const auto& properties = in(branch, "properties");
    const auto& op = in(properties, "op");
    auto ops = op.find("enum") != nullptr
                   ? strings(in(op, "enum"))
                   : Names{std::string(in(op, "const").as_string().value_or("?"))};
    Names required;
    if (const auto* const list = branch.find("required")) required = strings(*list);
    auto members = keys(properties);
    members.erase("op");
    for (const auto& op_name : ops) {
      SCOPED_TRACE(op_name);
      EXPECT_TRUE(seen.insert(op_name).second);
      const auto known = op_of(op_name);
      ASSERT_TRUE(known.has_value());
      auto own = names_of(rule(*known).required | rule(*known).allowed);
      if (*known == Op::flush) own.insert("layer");  // one value of a common member
      EXPECT_EQ(members, own);
      EXPECT_EQ(required, names_of(rule(*known).required));
    }
  }
  EXPECT_EQ(seen.size(), kOpCount - 1) << "every operation but x-";
}

TEST(Schema, TheCommonMembersAreThoseOfTheTable) {
  const auto root = schema();
  auto common = keys(in(in(in(root, "$defs"), "common"), "properties"));
  EXPECT_EQ(common.erase("op"), 1u);
  EXPECT_EQ(common, names_of(common_members()));
}

TEST(Schema, WordsAreThoseOfTheTables) {
  const auto root = schema();
  const auto& defs = in(root, "$defs");
  const auto& header = in(in(defs, "header"), "properties");
  EXPECT_EQ(strings(in(in(defs, "outcome"), "enum")), written(kOutcomeNames));
  EXPECT_EQ(strings(in(in(header, "level"), "enum")), written(kLevelNames));
  EXPECT_EQ(strings(in(in(in(header, "requires"), "items"), "enum")), written(kFeatures));
  EXPECT_EQ(strings(in(in(in(in(defs, "common"), "properties"), "layer"), "enum")),
            written(kLayerNames));
  for (const auto& branch : in(in(defs, "operation"), "oneOf").elements) {
    const auto& properties = in(branch, "properties");
    const auto op = in(properties, "op").find("const");
    if (op == nullptr) continue;
    if (op->as_string() == "memalloc") {
      EXPECT_EQ(strings(in(in(properties, "kind"), "enum")), written(kKindNames));
    }
    if (op->as_string() == "define") {
      EXPECT_EQ(strings(in(in(properties, "kind"), "enum")), written(kDefineKindNames));
    }
    if (op->as_string() == "free") {
      EXPECT_EQ(strings(in(in(properties, "cause"), "enum")), written(kCauseNames));
    }
    if (op->as_string() == "mark") {
      EXPECT_EQ(strings(in(in(properties, "phase"), "enum")), written(kPhaseNames));
    }
    if (op->as_string() == "mempin") {
      EXPECT_EQ(in(in(properties, "page_offset"), "maximum").as_u64(), kPageOffsetMax);
    }
  }
}

// The reader refuses a member it does not know, so each that the schema has must be known to it,
// and none more: what a misspelt member is told of is what the schema lists.
TEST(Schema, TheHeaderAndItsPartsHaveTheMembersThatTheReaderKnows) {
  const auto root = schema();
  const auto& header = in(in(in(root, "$defs"), "header"), "properties");
  const auto known_to_the_reader = [](std::string_view text) {
    const auto words = refusal(text);
    const std::string_view marker = ": expected ";
    const auto begin = words.rfind(marker) + marker.size();
    Names names;
    std::string name;
    for (const char c : words.substr(begin) + ",") {
      if (c == ',') {
        names.insert(std::exchange(name, {}));
      } else if (c != ' ') {
        name += c;
      }
    }
    return names;
  };
  const std::string begin = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",";
  EXPECT_EQ(known_to_the_reader(begin + "\"zzzzzzzzzzzzzzz\":1}\n"), keys(header));
  for (const char* part : {"clock", "source", "defaults"}) {
    EXPECT_EQ(known_to_the_reader(begin + "\"" + part + "\":{\"zzzzzzzzzzzzzzzzzzz\":1}}\n"),
              keys(in(in(header, part), "properties")))
        << part;
  }
  EXPECT_EQ(known_to_the_reader(begin + "\"devices\":[{\"zzzzzzzzzzzzzzzzzzz\":1}]}\n"),
            keys(in(in(in(header, "devices"), "items"), "properties")));
}

}  // namespace
}  // namespace emm::trace
