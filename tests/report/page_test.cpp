#include "report/page.hpp"

#include <gtest/gtest.h>

#include "base/assert.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::report {
namespace {

/// The page's part of a trace of these lines.
PagePart part_of(std::string_view lines) {
  const auto text =
      std::string("{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n").append(lines);
  Recorded recorded;
  recorded.set_source("x.jsonl");
  const auto source = format::ByteSource::memory(text, "x.jsonl");
  const auto read = trace::read(*source, recorded);
  EMM_ASSERT(read.has_value());
  const trace::Lifetimes lifetimes(recorded.recording().trace());
  return trace_part(recorded, lifetimes, {}, {},
                    inspect::fit_checks(recorded.recording(), lifetimes, std::nullopt), "x.jsonl");
}

const format::JsonValue& member(const format::JsonValue& of, std::string_view name) {
  const auto* found = of.find(name);
  EMM_ASSERT(found != nullptr);
  return *found;
}

TEST(TracePart, CountsChangesMemoriesAndTheSlotsThatTheyNeed) {
  const auto part = part_of(R"({"op":"memalloc","id":1,"size":10}
{"op":"memalloc","id":2,"size":20}
{"op":"free","id":1}
{"op":"memalloc","id":3,"size":30}
{"op":"mark","text":"x"}
{"op":"memalloc","id":4,"size":99,"result":"oom"}
)");

  const auto json = format::parse_json(part.json);

  ASSERT_TRUE(json);
  EXPECT_EQ(member(*json, "events").as_u64(), 6u);
  EXPECT_EQ(member(*json, "changes").as_u64(), 5u);
  EXPECT_EQ(member(*json, "memories").as_u64(), 4u);
  EXPECT_EQ(member(*json, "slots").as_u64(), 2u);
  EXPECT_EQ(member(*json, "live_overview").elements.size(), 6u);
  EXPECT_EQ(member(*json, "live_overview").elements[4].as_u64(), 50u);
}

TEST(TracePart, OfATraceWithoutEventsIsJsonToo) {
  EXPECT_TRUE(format::parse_json(part_of("").json));
}

TEST(Page, HoldsNoTextThatEndsItsData) {
  const auto value = format::parse_json(R"({"schema":"emmctl.x/1","a":"</script><b>"})");
  ASSERT_TRUE(value);

  const auto html = page({.title = "<i>", .command = {}, .version = {}, .machine = {}, .time = {}},
                         {}, {result_part(*value, "x.json")});

  EXPECT_EQ(html.find("</script><b>"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script>\\u003cb>"), std::string::npos);
  EXPECT_NE(html.find("<title>&lt;i></title>"), std::string::npos);
  EXPECT_EQ(html.find("sourceMappingURL"), std::string::npos);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST(Page, NamesCharactersThatABrowserObeysOrDoesNotShow) {
  const auto value = format::parse_json(
      "{\"schema\":\"emmctl.x/1\",\"a\":\"\u202ekcab\\u001b \\\\u001b \u00fc\"}");
  ASSERT_TRUE(value);

  const auto html = page({.title = "x", .command = {}, .version = {}, .machine = {}, .time = {}},
                         {}, {result_part(*value, "x.json")});

  EXPECT_NE(html.find(R"("a":"\\u{202e}kcab\\u{1b} \\u001b )"), std::string::npos);
  EXPECT_NE(html.find("\u00fc"), std::string::npos);
}

}  // namespace
}  // namespace emm::report
