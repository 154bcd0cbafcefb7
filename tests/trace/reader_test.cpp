#include "trace/reader.hpp"

#include <gtest/gtest.h>

#include "base/text_format.hpp"
#include "tests/trace/trace_text.hpp"

namespace emm::trace {
namespace {

std::string line_refusal(std::string_view line) {
  return refusal(with_header(std::string(line) + "\n"));
}
std::string header_refusal(std::string_view members) {
  return refusal(text::format("{\"format\":\"emmctl-trace\",\"version\":\"1.0\",{}}\n", members));
}

TEST(Reader, LinesAndADocumentReadTheSame) {
  const std::string lines =
      with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":5}\n{\"op\":\"free\",\"id\":1}\n");
  const std::string document =
      "{ \"format\": \"emmctl-trace\", \"version\": \"1.0\", \"events\": [\n"
      "  { \"op\": \"memalloc\", \"id\": \"1\", \"size\": \"0x5\" },\n  { \"id\": 1, \"op\": "
      "\"free\" } ] }";

  EXPECT_EQ(rewritten(lines, Form::lines), lines);
  EXPECT_EQ(rewritten(document, Form::lines), lines);
  EXPECT_EQ(rewritten(rewritten(lines, Form::document), Form::lines), lines);
  EXPECT_EQ(
      rewritten("{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"events\":[]}", Form::lines),
      kHeaderLine);
}

TEST(Reader, TakesCarriageReturnsAndALastLineWithoutItsEnd) {
  EXPECT_EQ(rewritten("{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\r\n{\"op\":\"reset\"}\r\n{"
                      "\"op\":\"reset\"}",
                      Form::lines),
            with_header("{\"op\":\"reset\"}\n{\"op\":\"reset\"}\n"));
  EXPECT_EQ(rewritten("{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}", Form::lines),
            kHeaderLine);
}

TEST(Reader, NamesTheFileTheLineTheColumnTheMemberAndWhatWasExpected) {
  EXPECT_EQ(line_refusal(R"({"op":"memalloc","id":1,"size":-4096})"),
            "x.json:2:32: \"size\" is -4096: expected a count of bytes");
  EXPECT_EQ(refusal("{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\n\"events\":[\n  "
                    "{\"op\":\"memalloc\",\"id\":1,\n   \"size\":4.0}]}"),
            "x.json:4:11: \"size\" is 4.0: expected a count of bytes");
}

TEST(Reader, RefusesNumbersThatAreNotExactCounts) {
  const auto size = [](std::string_view value) {
    return line_refusal(text::format(R"({"op":"memalloc","id":1,"size":{}})", value));
  };
  for (const char* good :
       {"0", "9007199254740991", "\"18446744073709551615\"", "\"0xffffffffffffffff\"", "\"007\""}) {
    EXPECT_EQ(size(good), "") << good;
  }
  for (const char* bad : {"4.0", "1e3", "18446744073709551616", "-1", "-0", "true", "null", "[]",
                          "\"\"", "\"0x\"", "\"-1\"", "\"18446744073709551616\"",
                          "\"0x10000000000000000\"", "\"4 KiB\"", "\"000000000000000000001\""}) {
    const auto words = size(bad);
    EXPECT_TRUE(words.starts_with("x.json:2:32: \"size\" is ") &&
                words.ends_with(": expected a count of bytes"))
        << words;
  }
  EXPECT_EQ(size("9007199254740992"),
            "x.json:2:32: \"size\" is 9007199254740992: expected a string of digits, as above "
            "9007199254740991");
}

TEST(Reader, RefusesValuesOfOtherKinds) {
  EXPECT_EQ(line_refusal(R"({"op":"mempin","id":1,"size":1,"page_offset":4096})"),
            "x.json:2:46: \"page_offset\" is 4096: expected 0 to 4095");
  EXPECT_EQ(line_refusal(R"({"op":"reset","device":256})"),
            "x.json:2:24: \"device\" is 256: expected 0 to 255");
  EXPECT_EQ(line_refusal(R"({"op":"memalloc","id":1,"size":1,"addr":4096})"),
            "x.json:2:41: \"addr\" is 4096: expected an address such as \"0x7f0000000200\"");
  EXPECT_EQ(line_refusal(R"({"op":"memhostalloc","id":1,"size":1,"mapped":1})"),
            "x.json:2:47: \"mapped\" is 1: expected true or false");
  EXPECT_EQ(line_refusal(R"({"op":"reset","label":7})"),
            "x.json:2:23: \"label\" is 7: expected a string");
  EXPECT_EQ(line_refusal(R"({"op":"reset","time_ns":"soon"})"),
            "x.json:2:25: \"time_ns\" is \"soon\": expected a count of nanoseconds");
  EXPECT_EQ(line_refusal(R"({"op":"reset","seq":{}})"),
            "x.json:2:21: \"seq\" is an object: expected a count");
  EXPECT_EQ(line_refusal(R"({"op":"free","id":"a b"})"),
            "x.json:2:19: \"id\" is \"a b\": expected an id: a count, or a string of 1 to 64 "
            "letters, digits and _.:/-");
  EXPECT_EQ(line_refusal(R"({"op":"free","id":1,"cause":"gone"})"),
            "x.json:2:29: \"cause\" is \"gone\": expected \"explicit\", \"finalizer\", \"reset\" "
            "or \"exit\"");
  EXPECT_EQ(line_refusal(R"({"op":"memalloc","id":1,"size":1,"kind":"managed"})"),
            "x.json:2:41: \"kind\" is \"managed\": expected \"device\", \"array\" or \"physical\"");
  EXPECT_EQ(line_refusal(R"({"op":"stream_create","id":1,"priority":2147483648})"),
            "x.json:2:41: \"priority\" is 2147483648: expected an integer of 32 bits");
  EXPECT_EQ(line_refusal(R"({"op":"flush","count":1,"bytes":2,"layer":"request"})"),
            "x.json:2:43: \"layer\" is \"request\": expected \"backing\"");
  EXPECT_EQ(line_refusal(R"({"op":"use","ids":5})"),
            "x.json:2:19: \"ids\" is 5: expected an array of ids");
  EXPECT_EQ(line_refusal(R"({"op":"define","kind":"site","id":1,"frames":"f"})"),
            "x.json:2:46: \"frames\" is \"f\": expected an array of strings");
  EXPECT_EQ(line_refusal(R"({"op":"reset","result":{"code":2}})"),
            "x.json:2:24: \"result\" without \"outcome\": expected outcome");
  EXPECT_EQ(line_refusal(R"({"op":"reset","expect":{"aling":2}})"),
            "x.json:2:25: \"expect\" has no member \"aling\": expected \"align\"");
  EXPECT_EQ(line_refusal("5"), "x.json:2:1: \"operation\" is 5: expected an object with an \"op\"");
}

TEST(Reader, AMisspeltMemberNamesTheNearest) {
  EXPECT_EQ(line_refusal(R"({"op":"memhostalloc","id":1,"size":1,"maped":true})"),
            "x.json:2:38: memhostalloc has no member \"maped\": expected \"mapped\"");
  EXPECT_EQ(
      line_refusal(R"({"op":"close_ipc_handle","id":1,"zzzzzzzzzzzz":1})"),
      "x.json:2:33: close_ipc_handle has no member \"zzzzzzzzzzzz\": expected id, op, seq, enter, "
      "exit, time_ns, "
      "duration_ns, process, thread, context, device, layer, api, parent, site, label, result, "
      "expect");
  EXPECT_EQ(line_refusal(R"({"op":"free","id":1,"size":1})"),
            "x.json:2:21: free has no member \"size\": expected \"site\"");
}

TEST(Reader, AMemberIsSaidOnceAndNoneIsLacking) {
  EXPECT_EQ(line_refusal(R"({"op":"free","id":1,"id":1})"),
            "x.json:2:21: \"id\" for the second time: expected each member once");
  EXPECT_EQ(line_refusal(R"({"op":"free","op":"free","id":1})"),
            "x.json:2:14: \"op\" for the second time: expected each member once");
  EXPECT_EQ(line_refusal(R"({"op":"memalloc","id":1})"),
            "x.json:2:1: memalloc without \"size\": expected id, size");
  EXPECT_EQ(line_refusal(R"({"id":1})"),
            "x.json:2:1: an operation without \"op\": expected an operation of the format, or a "
            "name that begins with \"x-\"");
}

TEST(Reader, AnUnknownOperationNamesTheNearest) {
  EXPECT_EQ(line_refusal(R"({"op":"memaloc","id":1,"size":1})"),
            "x.json:2:7: \"op\" is \"memaloc\": expected \"memalloc\"");
  EXPECT_EQ(line_refusal(R"({"op":"abracadabra-simsalabim"})"),
            "x.json:2:7: \"op\" is \"abracadabra-simsalabim\": expected an operation of the "
            "format, or a name that begins with \"x-\"");
}

TEST(Reader, KeepsWhatBeginsWithXAndCountsTheOperations) {
  const auto text = with_header(
      "{\"op\":\"x-driver\",\"size\":\"any\",\"id\":[1,{\"a\":null}]}\n{\"op\":\"reset\",\"x-a\":1,"
      "\"x-b\":{\"c\":\"d\"}}\n");
  EXPECT_EQ(rewritten(text, Form::lines), text);
  NullSink sink;
  const auto source = format::ByteSource::memory(text);

  const auto summary = read(*source, sink);

  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->operations, 2u);
  EXPECT_EQ(summary->extensions, 1u);
}

TEST(Reader, TheHeaderKeepsTheRulesToo) {
  EXPECT_EQ(header_refusal(R"("versoin":1)"),
            "x.json:1:42: the header has no member \"versoin\": expected \"version\"");
  EXPECT_EQ(header_refusal(R"("clock":{"sauce":"x"})"),
            "x.json:1:51: \"clock\" has no member \"sauce\": expected \"source\"");
  EXPECT_EQ(header_refusal(R"("source":{"tol":"x"})"),
            "x.json:1:52: \"source\" has no member \"tol\": expected \"tool\"");
  EXPECT_EQ(header_refusal(R"("devices":[{"id":0,"capcity":1}])"),
            "x.json:1:61: \"devices\" has no member \"capcity\": expected \"capacity\"");
  EXPECT_EQ(header_refusal(R"("defaults":{"devise":0})"),
            "x.json:1:54: \"defaults\" has no member \"devise\": expected \"device\"");
  EXPECT_EQ(header_refusal(R"("devices":[{}])"),
            "x.json:1:53: \"devices\" without \"id\": expected id");
  EXPECT_EQ(header_refusal(R"("devices":[{"id":0},{"id":0}])"),
            "x.json:1:62: \"devices\" is an object: expected each \"id\" once");
  EXPECT_EQ(header_refusal(R"("devices":{})"),
            "x.json:1:52: \"devices\" is an object: expected an array of objects");
  EXPECT_EQ(header_refusal(R"("clock":7)"), "x.json:1:50: \"clock\" is 7: expected an object");
  EXPECT_EQ(header_refusal(R"("requires":"ipc")"),
            "x.json:1:53: \"requires\" is \"ipc\": expected an array of strings");
  EXPECT_EQ(header_refusal(R"("requires":["ipc","ipc"])"),
            "x.json:1:60: \"requires\" is \"ipc\": expected each entry once");
  EXPECT_EQ(header_refusal(R"("x-anything":{"a":1})"), "");
}

TEST(Reader, RefusesWhatItCannotReplayRightly) {
  EXPECT_EQ(header_refusal(R"("requires":["ipc","telepathy","dreams"])"),
            "x.json:1:53: a replay of this trace must understand telepathy, dreams: expected no "
            "more than streams, events, "
            "ipc, pools, multi-device, multi-process, threads, graphs, host-functions, "
            "virtual-memory, peers");
  EXPECT_EQ(refusal("{\"format\":\"emmctl-trace\",\"version\":\"2.0\"}\n"),
            "x.json:1:36: \"version\" is \"2.0\": expected \"1.0\", or a later minor version of 1");
  EXPECT_EQ(refusal("{\"format\":\"emmctl-trace\",\"version\":\"1.01\"}\n")
                .find("\"version\" is \"1.01\""),
            13u);
  EXPECT_EQ(
      refusal(
          "{\"format\":\"emmctl-trace\",\"version\":\"1.7\"}\n{\"op\":\"reset\",\"x-soon\":1}\n"),
      "");
  EXPECT_EQ(
      refusal("{\"format\":\"emmctl-trace\",\"version\":\"1.7\"}\n{\"op\":\"reset\",\"soon\":1}\n"),
      "x.json:2:15: reset has no member \"soon\": expected op, seq, enter, exit, time_ns, "
      "duration_ns, process, thread, "
      "context, device, layer, api, parent, site, label, result, expect");
  EXPECT_EQ(refusal("{\"format\":\"emmctl-trace\"}\n"),
            "x.json:1:1: the header without \"version\": expected format, version");
}

TEST(Reader, SaysWhatAFileIsInsteadOfATrace) {
  const std::string other =
      "x.json: this is not an emmctl trace: expected a header with \"format\": \"emmctl-trace\"";
  EXPECT_EQ(refusal("Thread,Time,Action\n1,2,3\n"), other);
  EXPECT_EQ(refusal("{\"traceEvents\":[]}"), other);
  EXPECT_EQ(refusal("{\n\"traceEvents\":[]}"), other);
  EXPECT_EQ(refusal("{\"format\":7}"), other);
  EXPECT_EQ(refusal(""), "x.json: the file is empty: expected an emmctl trace");
  EXPECT_EQ(refusal(" \n\n"), "x.json: the file is empty: expected an emmctl trace");
  EXPECT_EQ(refusal("\xef\xbb\xbf{}"), other) << "a byte order mark is no part of it";
  EXPECT_EQ(refusal(with_header("\n{\"op\":\"reset\"}\n")),
            "x.json:2: a blank line: expected an operation on each line");
}

TEST(Reader, ADocumentHasItsEventsLast) {
  const std::string begin = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\n";
  EXPECT_EQ(refusal(begin + "\"events\":[],\"name\":\"x\"}"),
            "x.json:2:13: \"name\" after \"events\": expected \"events\" to be the last member");
  EXPECT_EQ(refusal(begin + "\"name\":\"x\"}"),
            "x.json:1:1: the document without \"events\": expected an array of operations");
  EXPECT_EQ(refusal(begin + "\"events\":{}}"),
            "x.json:2:10: \"events\" is an object: expected an array of operations");
  EXPECT_EQ(refusal(begin + "\"events\":[7]}"),
            "x.json:2:11: \"operation\" is 7: expected an object with an \"op\"");
}

TEST(Reader, ATornTailIsAnErrorOrWithPartialTheEnd) {
  const auto whole = with_header("{\"op\":\"memalloc\",\"id\":1,\"size\":5}\n");
  const auto torn = whole + "{\"op\":\"free\",\"id";
  EXPECT_EQ(refusal(torn), "x.json:3: the file ends inside a line");
  EXPECT_EQ(rewritten(torn, Form::lines, {.partial = true}), whole);

  const std::string document =
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"events\":[\n{\"op\":\"memalloc\",\"id\":"
      "1,\"size\":5},\n{\"op\":";
  EXPECT_EQ(refusal(document), "x.json:3: the file ends inside the document");
  EXPECT_EQ(rewritten(document, Form::lines, {.partial = true}), whole);
  EXPECT_EQ(refusal("{\"format\":\"emmctl-trace\",\n", {.partial = true}),
            "x.json:2: the file ends inside its header");

  NullSink sink;
  const auto source = format::ByteSource::memory(torn, "x.json");
  const auto summary = read(*source, sink, {.partial = true});
  ASSERT_TRUE(summary);
  EXPECT_TRUE(summary->torn);
  EXPECT_EQ(summary->torn_where, "x.json:3: the file ends inside a line");
  EXPECT_EQ(summary->operations, 1u);
}

TEST(Reader, OfEveryCutTheWholeOperationsAreRead) {
  const std::string first = "{\"op\":\"memalloc\",\"id\":\"w\",\"size\":5,\"label\":\"a b\"}";
  const std::string second = "{\"op\":\"free\",\"id\":\"w\"}";
  const auto whole = with_header(first + "\n" + second + "\n");
  for (std::size_t kept = kHeaderLine.size(); kept < whole.size(); ++kept) {
    std::string expected(kHeaderLine);
    if (kept >= kHeaderLine.size() + first.size()) expected += first + "\n";
    if (kept >= whole.size() - 1) expected += second + "\n";

    EXPECT_EQ(rewritten(whole.substr(0, kept), Form::lines, {.partial = true}), expected) << kept;
  }
}

TEST(Reader, APackedFileThatIsCutIsTorn) {
  const std::string text = with_header("{\"op\":\"reset\"}\n");
  const char* const path = "/tmp/emm_reader_test.jsonl.gz";
  {
    auto sink = format::ByteSink::open(path);
    ASSERT_TRUE(sink);
    ASSERT_TRUE((*sink)->write(text));
    ASSERT_TRUE((*sink)->flush());
    auto source = format::ByteSource::open(path);
    NullSink null;
    const auto summary = read(**source, null);
    ASSERT_FALSE(summary);
    EXPECT_EQ(summary.error().message,
              "/tmp/emm_reader_test.jsonl.gz:2: the file ends before the end of its packed data");
    auto again = format::ByteSource::open(path);
    EXPECT_TRUE(read(**again, null, {.partial = true}));
  }
  std::remove(path);
}

TEST(Reader, ALineInTheMiddleThatEndsEarlyIsNoTornTail) {
  EXPECT_EQ(refusal(with_header("{\"op\":\n{\"op\":\"reset\"}\n")),
            "x.json:2:7: the line ends inside a value: expected a whole JSON object on each line");
  EXPECT_EQ(refusal(with_header("{\"op\" \"reset\"}\n")),
            "x.json:2:7: not JSON: syntax error while parsing object separator - unexpected string "
            "literal; expected ':'");
  std::string deep = "{\"op\":\"reset\",\"x-a\":" + std::string(200, '[');
  EXPECT_EQ(refusal(with_header(deep + "\n")),
            "x.json:2:220: JSON nested deeper than 200: expected less");
}

TEST(Reader, AFaultHandlerHearsOfEachOperationThatIsNotRight) {
  std::string heard;
  const ReadOptions options{
      .on_fault = [&](std::uint32_t line, const Error&) { heard += text::format("{} ", line); }};

  const auto out = rewritten(with_header("{\"op\":\"reset\"}\n\n{\"op\":\"rest\"}\n{\"op\n{\"op\":"
                                         "\"reset\",\"a\":1}\n{\"op\":\"reset\"}\n"),
                             Form::lines, options);

  EXPECT_EQ(heard, "3 4 5 6 ");
  EXPECT_EQ(out, with_header("{\"op\":\"reset\"}\n{\"op\":\"reset\"}\n"));
}

}  // namespace
}  // namespace emm::trace
