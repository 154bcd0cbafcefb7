// The traces that come with the project.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "exchange/importer.hpp"
#include "format/byte_sink.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

namespace fs = std::filesystem;
const fs::path kTraces = fs::path(EMM_SOURCE_DIR) / "traces";

std::vector<std::string> paths(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.find(".json") == std::string::npos || name.find("schema") != std::string::npos)
      continue;
    found.push_back(fs::relative(entry.path(), kTraces).string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Counts what `end` says, another way than the importers and the engine do.
struct Tally : OperationSink {
  struct Made {
    std::uint64_t size;
    std::string context;
  };
  std::map<std::string, Made> live;
  std::set<Op> operations;
  std::uint64_t count = 0;
  Header header;
  bool ended = false;

  static std::string name(const Id& id) {
    return id.is_number() ? std::to_string(id.number) : std::string(id.text);
  }

  Status on_header(const Header& given) override {
    header = given;
    return {};
  }
  Status on_operation(const Operation& op) override {
    EXPECT_FALSE(ended);
    operations.insert(op.op);
    const auto context = op.has(Member::context) ? name(op.context) : header.default_context;
    const auto said = op.result.outcome != Outcome::none ? op.result.outcome : op.expect.outcome;
    const auto refused = said != Outcome::none && said != Outcome::ok && said != Outcome::any;
    const auto request = op.layer == Layer::request;
    switch (op.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
      case Op::mempin:
        if (request && !refused) live.emplace(name(op.id), Made{op.size, context});
        break;
      case Op::free:
        if (request) live.erase(name(op.id));
        break;
      case Op::reset:
      case Op::context_destroy:
        for (auto at = live.begin(); at != live.end();)
          at = at->second.context == context ? live.erase(at) : ++at;
        break;
      case Op::end: {
        std::uint64_t bytes = 0;
        for (const auto& [id, made] : live) bytes += made.size;
        EXPECT_EQ(op.events, count);
        EXPECT_EQ(op.live, live.size());
        EXPECT_EQ(op.live_bytes, bytes);
        ended = true;
        break;
      }
      default:
        break;
    }
    ++count;
    return {};
  }
};

std::unique_ptr<format::ByteSource> open(const std::string& path) {
  auto source = format::ByteSource::open((kTraces / path).string());
  EXPECT_TRUE(source) << describe(source.error());
  return *std::move(source);
}

TEST(Traces, AreWhatAReplayCanRelyOn) {
  ASSERT_GE(paths(kTraces).size(), 25u);
  for (const auto& path : paths(kTraces)) {
    Trace trace;
    const auto done = read(*open(path), trace);

    EXPECT_TRUE(done) << describe(done.error());
    EXPECT_GT(trace.size(), 2u) << path;
    EXPECT_EQ(trace.header().minor, 0) << path;
  }
}

TEST(Traces, AddUpToWhatTheirEndsSay) {
  for (const auto& path : paths(kTraces)) {
    SCOPED_TRACE(path);
    Tally tally;

    ASSERT_TRUE(read(*open(path), tally));

    EXPECT_TRUE(tally.ended);
  }
}

TEST(Traces, AreTheSameWrittenAndReadInEitherForm) {
  for (const auto& path : paths(kTraces)) {
    const auto written = [&](format::ByteSource& source, Form form) {
      std::string text;
      const auto out = format::ByteSink::to_string(text);
      const auto writer = make_writer(*out, form);
      EXPECT_TRUE(read(source, *writer)) << path;
      EXPECT_TRUE(out->flush());
      return text;
    };

    const auto lines = written(*open(path), Form::lines);
    const auto document = written(*format::ByteSource::memory(lines), Form::document);
    const auto again = written(*format::ByteSource::memory(document), Form::lines);

    EXPECT_TRUE(lines == again) << path;
  }
}

TEST(Traces, AreEachInTheReadme) {
  std::ostringstream readme;
  readme << std::ifstream(kTraces / "README.md").rdbuf();
  for (const auto& path : paths(kTraces)) {
    EXPECT_NE(readme.str().find("`" + path + "`"), std::string::npos) << path;
  }
}

TEST(Traces, OfTheBasicsAreNamedAsTheirFilesAndSmall) {
  for (const auto& path : paths(kTraces / "basics")) {
    Tally tally;
    ASSERT_TRUE(read(*open(path), tally)) << path;

    EXPECT_EQ(tally.header.name, fs::path(path).stem().string());
    EXPECT_FALSE(tally.header.description.empty()) << path;
    EXPECT_LE(tally.count, 20u) << path;
  }
}

TEST(Traces, OfTheBasicsShowEveryOperationThatAManagerIsAskedFor) {
  std::set<Op> shown;
  for (const auto& path : paths(kTraces / "basics")) {
    Tally tally;
    ASSERT_TRUE(read(*open(path), tally)) << path;
    shown.insert(tally.operations.begin(), tally.operations.end());
  }

  for (auto op = 0; op <= static_cast<int>(Op::reset); ++op) {
    EXPECT_EQ(shown.count(static_cast<Op>(op)), 1u) << name(static_cast<Op>(op));
  }
}

TEST(Traces, OfRecordingsAreWhatTheImportersMakeOfThem) {
  const auto* const said = std::getenv("EMM_EXTRA_TRACES");
  const fs::path folder = said != nullptr ? said : EMM_EXTRA_TRACES;
  if (folder.empty())
    GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the folder of the collected recordings";

  for (const auto& path : paths(kTraces)) {
    const auto torch = path.rfind("torch/", 0) == 0;
    if (!torch && path.rfind("numba/", 0) != 0) continue;
    auto original = path;
    if (torch) original.replace(original.find(".jsonl"), 6, ".json");
    auto source = format::ByteSource::open((folder / original).string());
    ASSERT_TRUE(source) << describe(source.error());
    std::string made;
    const auto out = format::ByteSink::to_string(made);
    const auto writer = make_writer(*out, Form::lines);
    ASSERT_TRUE((*detect(**source))->read(**source, *writer, {})) << path;
    ASSERT_TRUE(out->flush());

    std::string kept;
    const auto committed = open(path);
    for (auto bytes = committed->next(); bytes && !bytes->empty(); bytes = committed->next())
      kept += *bytes;
    EXPECT_TRUE(made == kept) << path << " is not what emmctl convert makes today";
  }
}

}  // namespace
}  // namespace emm::trace
