#include "trace/writer.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/text_format.hpp"
#include "tests/trace/random_operation.hpp"
#include "tests/trace/trace_text.hpp"
#include "trace/header.hpp"
#include "trace/json/flat_line.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

/// Compares what it is told with what a seed makes.
class Expecting final : public OperationSink {
 public:
  explicit Expecting(std::uint64_t seed) : expected_(seed) {}
  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation& operation) override {
    EXPECT_EQ(difference(expected_.next(), operation), "")
        << "operation " << count << " line " << operation.line;
    ++count;
    return {};
  }
  int count = 0;

 private:
  RandomOperation expected_;
};

TEST(Writer, WhatIsWrittenReadsTheSame) {
  constexpr int kOperations = 20'000;
  for (const auto form : {Form::lines, Form::document}) {
    constexpr std::uint64_t kSeed = 20261121;
    SCOPED_TRACE(text::format("seed {}", kSeed));
    std::string out;
    const auto sink = format::ByteSink::to_string(out);
    const auto writer = make_writer(*sink, form);
    RandomOperation random(kSeed);
    ASSERT_TRUE(writer->on_header({}));
    for (int i = 0; i < kOperations; ++i) ASSERT_TRUE(writer->on_operation(random.next()));
    ASSERT_TRUE(writer->finish());

    Expecting expecting(kSeed);
    const auto source = format::ByteSource::memory(out, "x.json");
    const auto summary = read(*source, expecting);

    ASSERT_TRUE(summary) << describe(summary.error());
    EXPECT_EQ(expecting.count, kOperations);
    EXPECT_EQ(rewritten(out, form), out) << "the same bytes when written again";
  }
}

TEST(Writer, TheHeaderReadsTheSame) {
  Header header;
  header.minor = 3;
  header.requires_ = {"ipc", "streams"};
  header.name = "n\"ame";
  header.description = "d";
  header.level = Level::framework;
  header.has_complete = true;
  header.complete = false;
  header.has_clock = true;
  header.clock_source = "CLOCK_MONOTONIC";
  header.boot_id = "b";
  header.clock_start_ns = 5;
  header.clock_start_realtime_ns = 1795226097903696646;
  header.tool = "t";
  header.tool_version = "1";
  header.framework = "f";
  header.command = "c";
  header.host = "h";
  header.os = "o";
  header.source_options = R"({"a":[1,2.5]})";
  header.driver_version = 0;
  header.cupti_version = 130001;
  header.devices = {{.id = 0,
                     .name = "H200",
                     .uuid = "u",
                     .capacity = 1,
                     .free_at_start = 2,
                     .granularity = 3,
                     .alignment = ~std::uint64_t{0}},
                    {.id = 7, .name = "", .uuid = ""}};
  header.default_context = "c1";
  header.default_thread = "12";
  header.default_process = "p";
  header.default_device = 0;
  header.default_expect = Outcome::ok;
  header.extensions = R"("x-a":{"b":1},"x-c":null)";

  struct Keeps final : OperationSink {
    Status on_header(const Header& given) override {
      kept = given;
      return {};
    }
    Status on_operation(const Operation&) override { return {}; }
    Header kept;
  };
  for (const auto form : {Form::lines, Form::document}) {
    std::string out;
    const auto sink = format::ByteSink::to_string(out);
    const auto writer = make_writer(*sink, form);
    ASSERT_TRUE(writer->on_header(header));
    ASSERT_TRUE(writer->finish());

    Keeps keeps;
    const auto source = format::ByteSource::memory(out, "x.json");
    const auto summary = read(*source, keeps);

    ASSERT_TRUE(summary) << describe(summary.error());
    EXPECT_TRUE(keeps.kept == header) << out;
  }
}

TEST(Writer, WritesOneOperationALineInAFixedOrder) {
  EXPECT_EQ(rewritten("{\"version\":\"1.0\",\"name\":\"n\",\"format\":\"emmctl-trace\"}\n"
                      "{\"size\":\"0x5\",\"id\":\"7\",\"op\":\"memalloc\",\"addr\":\"0X0\"}\n",
                      Form::document)
                .substr(0, 10),
            "x.json:2:4");
  EXPECT_EQ(rewritten("{\"version\":\"1.0\",\"name\":\"n\",\"format\":\"emmctl-trace\"}\n"
                      "{\"size\":\"0xffffffffffffffff\",\"id\":\"7\",\"op\":\"memalloc\",\"addr\":"
                      "\"0x00FF\",\"thread\":\"main\"}\n",
                      Form::document),
            "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"name\":\"n\",\n\"events\":[\n"
            "{\"op\":\"memalloc\",\"thread\":\"main\",\"id\":7,\"size\":\"18446744073709551615\","
            "\"addr\":\"0xff\"}\n]}\n");
}

TEST(Writer, TheExamplesReadAndWriteTheSame) {
  for (const char* name : {"conformance.json", "recorded.jsonl"}) {
    std::ifstream file(std::string(EMM_SOURCE_DIR "/traces/examples/") + name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const auto once = rewritten(text, Form::lines);

    EXPECT_TRUE(once.starts_with("{\"format\":\"emmctl-trace\"")) << once.substr(0, 200);
    EXPECT_EQ(rewritten(once, Form::lines), once) << name;
    if (std::string_view(name) == "recorded.jsonl") {
      EXPECT_EQ(once, text) << "it is as the writer writes";
    }
  }
}

// The scanner of flat lines and the careful reader must agree wherever the former does not decline.
TEST(FlatLine, ReadsWhatTheCarefulReaderReads) {
  constexpr std::uint64_t kSeed = 7;
  RandomOperation random(kSeed);
  Prng damage(kSeed);
  FlatLineReader flat;
  const std::string source = "x";
  OperationReader careful(source);
  int accepted = 0;
  for (int i = 0; i < 40'000; ++i) {
    std::string line;
    const auto sink = format::ByteSink::to_string(line);
    const auto writer = make_writer(*sink, Form::lines);
    ASSERT_TRUE(writer->on_operation(random.next()));
    line.pop_back();
    if (damage.chance(0.5))
      line[damage.below(line.size())] = "0123456789\"{}[],: .-exab\\\x80\n"[damage.below(26)];
    if (damage.chance(0.1)) line.erase(damage.below(line.size()), 1 + damage.below(5));
    const auto padded = line + "\n" + std::string(64, '"');
    const auto view = std::string_view(padded).substr(0, line.size());

    Operation fast;
    if (!flat.read(view, fast)) continue;
    ++accepted;
    format::JsonBuilder handler(source);
    ASSERT_TRUE(format::read_json(view, handler, source)) << line;
    Operation slow;
    const auto read = careful.read(handler.root(), slow);
    ASSERT_TRUE(read) << line << describe(read.error());
    ASSERT_EQ(difference(fast, slow), "") << line;
  }
  EXPECT_GT(accepted, 1000);
}

/// The members of a flat or nested object as texts, `"name":value`.
std::vector<std::string> members_of(std::string_view line) {
  std::vector<std::string> members(1);
  auto depth = 0;
  bool in_string = false;
  for (std::size_t at = 1; at + 1 < line.size(); ++at) {
    const char c = line[at];
    if (c == '"') in_string = !in_string;
    if (!in_string && (c == '{' || c == '[')) ++depth;
    if (!in_string && (c == '}' || c == ']')) --depth;
    if (!in_string && depth == 0 && c == ',') {
      members.emplace_back();
      continue;
    }
    members.back().push_back(c);
    if (in_string && c == '\\') members.back().push_back(line[++at]);
  }
  return members;
}

/// The object with its members in another order, written as json.dumps does where `spaced`.
std::string shuffled(std::vector<std::string> members, bool spaced, Prng& random) {
  for (auto i = members.size(); i > 1; --i) std::swap(members[i - 1], members[random.below(i)]);
  std::string line = "{";
  for (const auto& member : members) {
    if (line.size() > 1) line += spaced ? ", " : ",";
    const auto colon = member.find(':');  // no name has one
    line += member.substr(0, colon + 1) + (spaced ? " " : "") + member.substr(colon + 1);
  }
  return line + "}";
}

std::string padded(std::string_view line) {
  return std::string(line) + "\n" + std::string(64, '"');
}

TEST(FlatLine, ReadsTheSameWhateverTheOrderOfTheMembersAndTheSpacesBetweenThem) {
  constexpr std::uint64_t kSeed = 11;
  RandomOperation random(kSeed);
  Prng order(kSeed);
  FlatLineReader flat;
  auto accepted = 0;
  for (int i = 0; i < 8'000; ++i) {
    std::string line;
    const auto sink = format::ByteSink::to_string(line);
    const auto writer = make_writer(*sink, Form::lines);
    ASSERT_TRUE(writer->on_operation(random.next()));
    line.pop_back();
    const auto as_written = padded(line);
    Operation first;
    const bool known = flat.read(std::string_view(as_written).substr(0, line.size()), first);
    accepted += known ? 1 : 0;
    const auto members = members_of(line);
    for (const bool spaced : {false, true}) {
      const auto other = shuffled(members, spaced, order);
      const auto other_padded = padded(other);
      Operation second;
      ASSERT_EQ(flat.read(std::string_view(other_padded).substr(0, other.size()), second), known)
          << line << "\n"
          << other;
      if (!known) continue;
      ASSERT_EQ(difference(first, second), "") << line << "\n" << other;
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(FlatLine, ReadsALineWhoseOperationComesLast) {
  for (const std::string line :
       {R"({"id": 7, "size": 4096, "op": "memalloc"})",
        R"({"time_ns":5,"bytes":4096,"count":2,"op":"flush"})", R"({ "id" : 7, "op" : "free" })"}) {
    FlatLineReader flat;
    const auto text = padded(line);
    Operation fast;
    ASSERT_TRUE(flat.read(std::string_view(text).substr(0, line.size()), fast)) << line;
    const std::string source = "x";
    format::JsonBuilder handler(source);
    ASSERT_TRUE(format::read_json(line, handler, source)) << line;
    Operation slow;
    ASSERT_TRUE(OperationReader(source).read(handler.root(), slow)) << line;
    EXPECT_EQ(difference(fast, slow), "") << line;
  }
}

TEST(FlatLine, LeavesWhatOnlyTheOperationCanTellToTheCarefulReader) {
  for (const std::string line : {R"({"layer":"request","count":1,"bytes":2,"op":"flush"})",
                                 R"({"kind":"array","id":1,"op":"define"})", R"({"id":1,"size":2})",
                                 R"({"op":"free","id":1,"op":"free"})", R"({"id":1,"op":"x-note"})",
                                 R"({})", R"({"id":1,})"}) {
    FlatLineReader flat;
    const auto text = padded(line);
    Operation operation;
    EXPECT_FALSE(flat.read(std::string_view(text).substr(0, line.size()), operation)) << line;
  }
}

}  // namespace
}  // namespace emm::trace
