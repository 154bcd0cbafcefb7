// Traces written as other tools' files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/text.hpp"
#include "exchange/exporter.hpp"
#include "format/byte_sink.hpp"
#include "format/json_value.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/anonymize.hpp"
#include "trace/generate.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

struct Exported {
  std::string text;
  std::string notes;
  std::string error;
};

Exported write(std::string_view format, format::ByteSource& source) {
  Exported exported;
  const auto out = format::ByteSink::to_string(exported.text);
  const auto sink = (*find_exporter(format))->open(*out);
  const auto importer = detect(source);
  if (!importer) {
    exported.error = importer.error().message;
    return exported;
  }
  if (const auto counts = (*importer)->read(source, *sink, {}); !counts)
    exported.error = counts.error().message;
  exported.notes = text::join(sink->notes(), "\n");
  return exported;
}

Exported write(std::string_view format, std::string_view trace) {
  return write(format, *format::ByteSource::memory(trace));
}

/// What a program asked for and released, in order: "a 512", "x 512" where it was refused, "f 3"
/// of the third that it was given. What a reset ends counts as released.
struct Requests final : OperationSink {
  std::vector<std::string> asked;

  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation& op) override {
    if (op.has(Member::layer) && op.layer == Layer::backing) return {};
    const auto id = op.id.is_number() ? text::format("{}", op.id.number) : std::string(op.id.text);
    switch (op.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
        if (op.size == 0) break;
        if (op.has(Member::result) && op.result.outcome != Outcome::ok) {
          asked.push_back(text::format("x {}", op.size));
          break;
        }
        asked.push_back(text::format("a {}", op.size));
        live_[id] = ++given_;
        break;
      case Op::free:
        end(id);
        break;
      case Op::reset: {
        std::map<std::uint64_t, std::string> in_order;
        for (const auto& [name, number] : live_) in_order[number] = name;
        for (const auto& [number, name] : in_order) end(name);
        break;
      }
      default:
        break;
    }
    return {};
  }
  Status finish() override { return {}; }

 private:
  void end(const std::string& id) {
    const auto at = live_.find(id);
    if (at == live_.end()) return;
    asked.push_back(text::format("f {}", at->second));
    live_.erase(at);
  }

  std::map<std::string, std::uint64_t> live_;
  std::uint64_t given_ = 0;
};

std::vector<std::string> requests_of(format::ByteSource& source) {
  Requests requests;
  const auto importer = detect(source);
  EXPECT_TRUE(importer);
  EXPECT_TRUE((*importer)->read(source, requests, {}));
  return requests.asked;
}

std::string trace_of(std::string_view operations, std::string_view header = "") {
  return text::format("{}{}}\n{}", R"({"format":"emmctl-trace","version":"1.0")", header,
                      operations);
}

TEST(RmmCsvExport, WritesTheLogThatRmmWouldHaveWritten) {
  const auto log = write(
      "rmm-csv",
      trace_of(R"({"op":"memalloc","time_ns":5000,"thread":7,"id":1,"size":512,"addr":"0x7f00"}
{"op":"memalloc","time_ns":6000,"thread":7,"id":2,"size":99999999999999,"stream":"legacy","result":"oom"}
{"op":"free","time_ns":45999,"thread":8,"id":1,"stream":"0x55aa"}
)"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text,
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "7,00:00:00.000000,allocate,0x7f00,512,0\n"
            "7,00:00:00.000001,allocate failure,(nil),99999999999999,0x1\n"
            "8,00:00:00.000040,free,0x7f00,512,0x55aa\n");
  EXPECT_EQ(log.notes, "");
}

TEST(RmmCsvExport, MakesUpAddressesWhereTwoLiveAtOneOrNoneIsRecorded) {
  const auto log = write("rmm-csv", trace_of(R"({"op":"memalloc","id":1,"size":512,"addr":"0x7f00"}
{"op":"memallocmanaged","id":2,"size":513,"addr":"0x7f00"}
{"op":"memhostalloc","id":3,"size":64}
)"));

  EXPECT_EQ(log.text,
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "0,00:00:00.000000,allocate,0x7f00,512,0\n"
            "0,00:00:00.000000,allocate,0x700000000000,513,0\n"
            "0,00:00:00.000000,allocate,0x700000000400,64,0\n");
  EXPECT_EQ(log.notes,
            "2 allocations are of managed or host memory, which the format does not tell from "
            "device memory\n"
            "2 allocations have no address of their own in the trace: theirs are made up");
}

TEST(Exports, WriteWhatAResetEndsAsFreedAndSayWhatTheyLeaveOut) {
  const auto log =
      write("rmm-csv", trace_of(R"({"op":"memalloc","id":"b","size":2,"addr":"0x200","context":"x"}
{"op":"memalloc","id":"a","size":1,"addr":"0x100","context":"x"}
{"op":"memalloc","id":"c","size":3,"addr":"0x300","context":"y"}
{"op":"memalloc","id":"d","size":0,"context":"x"}
{"op":"get_memory_info","context":"x"}
{"op":"reset","context":"x"}
{"op":"free","id":"b","context":"x"}
)"));

  EXPECT_EQ(log.text.substr(log.text.find("free")),
            "free,0x200,2,0\n"
            "0,00:00:00.000000,free,0x100,1,0\n");
  EXPECT_EQ(log.notes,
            "1 operations have no place in the format: left out\n"
            "1 allocations of 0 bytes are left out\n"
            "1 frees are of what is not written: left out\n"
            "2 allocations are ended by a reset or their context's end: written as freed there");
}

TEST(DsaCsvExport, HasTogetherWhatLivesTogetherAndNothingElse) {
  const auto problem = write("dsa-csv", trace_of(R"({"op":"memalloc","id":1,"size":10}
{"op":"memalloc","id":"a/b","size":20}
{"op":"free","id":1}
{"op":"memalloc","id":3,"size":30}
{"op":"memalloc","id":4,"size":40,"result":"oom"}
)"));

  EXPECT_EQ(problem.text,
            "id,lower,upper,size\n"
            "1,0,1,10\n"
            "a/b,0,2,20\n"
            "3,1,2,30\n");
  EXPECT_EQ(problem.notes,
            "1 allocations failed: left out\n"
            "2 allocations are never freed: they live to the end");
}

TEST(DsaCsvExport, HasAnAlignmentColumnWhereOneIsAskedFor) {
  const auto problem = write("dsa-csv", trace_of(R"({"op":"memalloc","id":1,"size":10,"align":256}
{"op":"memalloc","id":2,"size":20}
)"));

  EXPECT_EQ(problem.text,
            "id,lower,upper,size,alignment\n"
            "1,0,1,10,256\n"
            "2,0,1,20,1\n");
}

TEST(ChromeTrace, IsJsonWithCountersLivesAndInstants) {
  const auto picture =
      write("chrome-trace",
            trace_of(R"({"op":"memalloc","time_ns":100,"layer":"backing","id":"s1","size":512}
{"op":"memalloc","time_ns":1100,"id":1,"size":24,"addr":"0x100","label":"pool","thread":5}
{"op":"mark","time_ns":1200,"text":"step 1"}
{"op":"memalloc","time_ns":2000,"id":2,"size":99,"result":"oom"}
{"op":"flush","time_ns":2100,"layer":"backing","count":2,"bytes":10}
{"op":"free","time_ns":2345,"id":1}
{"op":"free","time_ns":2400,"layer":"backing","id":"s1"}
)"));

  EXPECT_EQ(picture.error, "");
  EXPECT_EQ(picture.text,
            R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"C","name":"reserved bytes","pid":0,"tid":0,"ts":0.000,"args":{"bytes":512}},
{"ph":"b","name":"24 bytes","pid":0,"tid":5,"ts":1.000,"cat":"allocation","id":0,"args":{"size":24,"op":"memalloc","addr":"0x100","label":"pool"}},
{"ph":"C","name":"live bytes","pid":0,"tid":5,"ts":1.000,"args":{"bytes":24}},
{"ph":"i","name":"step 1","pid":0,"tid":0,"ts":1.100,"s":"p"},
{"ph":"i","name":"memalloc of 99 bytes: oom","pid":0,"tid":0,"ts":1.900,"s":"p"},
{"ph":"i","name":"flush of 2 frees","pid":0,"tid":0,"ts":2.000,"s":"p"},
{"ph":"e","name":"24 bytes","pid":0,"tid":0,"ts":2.245,"cat":"allocation","id":0},
{"ph":"C","name":"live bytes","pid":0,"tid":0,"ts":2.245,"args":{"bytes":0}},
{"ph":"C","name":"reserved bytes","pid":0,"tid":0,"ts":2.300,"args":{"bytes":0}}
]}
)");
  EXPECT_TRUE(format::parse_json(picture.text));
  EXPECT_TRUE(format::parse_json(write("chrome-trace", trace_of("")).text));
}

TEST(Exports, OfAnUnknownFormatNameThoseThatThereAre) {
  EXPECT_EQ(find_exporter("csv").error().message.find(
                "no format 'csv' to write: known are emm, rmm-csv, dsa-csv"),
            0u);
}

/// What the importer makes of a trace that was written as a snapshot.
std::string snapshot_of(std::string_view trace) {
  return import_text("torch-pickle", write("torch-pickle", trace).text).text();
}

TEST(TorchPickleExport, HasTheSegmentsOfTheBackingLayerAndWhatIsPending) {
  const auto trace = trace_of(
      R"({"op":"memalloc","layer":"backing","id":"s0","size":4096,"addr":"0x9000","preexisting":true}
{"op":"memalloc","id":7,"size":100,"addr":"0x9000","granted":512,"preexisting":true}
{"op":"memalloc","time_ns":1000,"layer":"backing","kind":"physical","id":"s1","size":4096,"addr":"0x1000","stream":"0x5"}
{"op":"memalloc","time_ns":2000,"layer":"backing","kind":"physical","id":"s2","size":4096,"addr":"0x2000","stream":"0x5"}
{"op":"memalloc","time_ns":3000,"id":1,"size":6000,"addr":"0x1000","stream":"0x5"}
{"op":"memalloc","time_ns":4000,"id":2,"size":600,"addr":"0x2800","stream":"0x5"}
{"op":"free","time_ns":5000,"id":1,"stream":"0x5"}
{"op":"free","time_ns":6000,"id":2,"stream":"0x5"}
{"op":"free","time_ns":7000,"layer":"backing","id":1,"stream":"0x5"}
{"op":"free","time_ns":7000,"layer":"backing","id":2,"result":"error"}
{"op":"mark","time_ns":8000,"text":"step","phase":"begin"}
)");

  EXPECT_EQ(write("torch-pickle", trace).notes, "");
  EXPECT_EQ(snapshot_of(trace),
            "memalloc backing id=s1 size=4096 addr=0x9000 preexisting\n"
            "memalloc id=1 size=100 addr=0x9000 granted=512 preexisting\n"
            "memalloc backing physical id=s2 size=4096 addr=0x1000 stream=0x5 time_ns=0\n"
            "memalloc backing physical id=s3 size=4096 addr=0x2000 stream=0x5 time_ns=1000\n"
            "memalloc id=2 size=6000 addr=0x1000 stream=0x5 time_ns=2000\n"
            "memalloc id=3 size=600 addr=0x2800 granted=1024 stream=0x5 time_ns=3000\n"
            "free id=2 stream=0x5 time_ns=4000\n"
            "free id=3 stream=0x5 time_ns=5000\n"
            "free backing id=2 stream=0x5 time_ns=6000\n"
            "mark time_ns=7000 step begin\n"
            "free backing id=3 time_ns=7000 error\n"
            "end events=11 live=1 live_bytes=100");
}

TEST(TorchPickleExport, HasNoMoreReservedThanLiveWhereNoSegmentsAreRecorded) {
  const auto trace = trace_of(R"({"op":"memalloc","id":1,"size":100,"addr":"0x1000","context":"x"}
{"op":"memalloc","id":2,"size":700,"addr":"0x2000","context":"x"}
{"op":"memalloc","id":3,"size":50,"result":"oom"}
{"op":"memalloc","id":4,"size":50,"result":"invalid"}
{"op":"free","id":1,"context":"x"}
{"op":"reset","context":"x"}
{"op":"memalloc","id":5,"size":9,"addr":"0x3000"}
)");

  EXPECT_EQ(snapshot_of(trace),
            "memalloc backing id=s1 size=100 addr=0x1000\n"
            "memalloc id=1 size=100 addr=0x1000\n"
            "memalloc backing id=s2 size=700 addr=0x2000\n"
            "memalloc id=2 size=700 addr=0x2000\n"
            "memalloc id=3 size=50 oom\n"
            "free id=1\n"
            "free backing id=s1\n"
            "free id=2\n"
            "free backing id=s2\n"
            "memalloc backing id=s3 size=9 addr=0x3000\n"
            "memalloc id=4 size=9 addr=0x3000 granted=9\n"
            "end events=11 live=1 live_bytes=9");
  EXPECT_EQ(write("torch-pickle", trace).notes,
            "1 operations have no place in the format: left out\n"
            "1 allocations are ended by a reset or their context's end: written as freed there\n"
            "3 allocations lie in no segment that the trace has: each gets one of its own, exactly "
            "as large; what their "
            "manager held for them is not known");
}

TEST(TorchPickleExport, EndsWhereOneAllocationTakesAllAddresses) {
  // Its made-up address is behind everything.
  const auto trace = trace_of(R"({"op":"memalloc","id":1,"size":1125899906842624,"addr":"0x1000"}
{"op":"memalloc","id":2,"size":600}
)");
  EXPECT_NE(snapshot_of(trace).find("1125899906842624"), std::string::npos);
}

TEST(TorchPickleExport, OfATraceOfTheDriversCallsNeedNotSayThatEachIsASegment) {
  EXPECT_EQ(write("torch-pickle", trace_of(R"({"op":"memalloc","id":1,"size":100,"addr":"0x1000"}
)",
                                           R"(,"level":"driver")"))
                .notes,
            "");
}

TEST(TorchPickleExport, HasTheRowsOfEachDevice) {
  EXPECT_EQ(snapshot_of(trace_of(
                R"({"op":"memalloc","time_ns":1000,"device":2,"id":1,"size":100,"addr":"0x1000"}
{"op":"memalloc","time_ns":2000,"device":1,"id":2,"size":200,"addr":"0x1000"}
{"op":"free","time_ns":3000,"device":2,"id":1}
)")),
            "memalloc backing id=s1 size=100 addr=0x1000 device=2 time_ns=0\n"
            "memalloc id=1 size=100 addr=0x1000 device=2 time_ns=0\n"
            "memalloc backing id=s2 size=200 addr=0x1000 device=1 time_ns=1000\n"
            "memalloc id=2 size=200 addr=0x1000 granted=200 device=1 time_ns=1000\n"
            "free id=1 device=2 time_ns=2000\n"
            "free backing id=s1 device=2 time_ns=2000\n"
            "end events=6 live=1 live_bytes=200");
}

TEST(TorchPickleExport, KeepsTheOrderBetweenDevicesWhereThereAreNoTimes) {
  const auto trace = trace_of(R"({"op":"memalloc","device":1,"id":1,"size":100,"addr":"0x1000"}
{"op":"memalloc","device":0,"id":2,"size":200,"addr":"0x2000"}
{"op":"free","device":1,"id":1}
)");

  const auto snapshot = snapshot_of(trace);

  EXPECT_LT(snapshot.find("size=200"), snapshot.find("free id=1"));
  EXPECT_LT(snapshot.find("size=100"), snapshot.find("size=200"));
  EXPECT_NE(write("torch-pickle", trace)
                .notes.find("3 operations have no times: their order stands for microseconds"),
            std::string::npos);
}

TEST(TorchPickleExport, PlacesWhatHasNoAddressInSegmentsThatHaveRoom) {
  const auto trace = trace_of(R"({"op":"memalloc","layer":"backing","id":"s1","size":2048}
{"op":"memalloc","id":1,"size":1000}
{"op":"memalloc","id":2,"size":1000}
{"op":"free","id":1}
{"op":"memalloc","id":3,"size":512}
{"op":"memalloc","id":4,"size":1024}
)");

  const auto snapshot = snapshot_of(trace);

  EXPECT_EQ(snapshot.substr(0, snapshot.find("memalloc id=4")),
            "memalloc backing id=s1 size=2048 addr=0x100000000000\n"
            "memalloc id=1 size=1000 addr=0x100000000000\n"
            "memalloc id=2 size=1000 addr=0x100000000400 granted=1024\n"
            "free id=1\n"
            "memalloc id=3 size=512 addr=0x100000000000 granted=512\n"
            "memalloc backing id=s2 size=1024 addr=0x100000000800\n");
}

TEST(TorchPickleExport, DoesNotMakeUpWhatTheDeviceHadFree) {
  EXPECT_EQ(snapshot_of(trace_of(R"({"op":"memalloc","id":1,"size":50,"result":"oom"}
)")),
            "memalloc id=1 size=50 oom\nend events=1 live=0 live_bytes=0");
}

TEST(TorchPickleExport, PlacesWhatHasNoAddressWhereNothingLives) {
  const auto exported = write("torch-pickle", trace_of(R"({"op":"memalloc","id":1,"size":600}
{"op":"memalloc","id":2,"size":5,"addr":"0x1000"}
{"op":"memalloc","id":3,"size":5,"addr":"0x1000"}
)"));
  const auto again = import_text("torch-pickle", exported.text);

  EXPECT_NE(exported.notes.find(
                "2 allocations have no address of their own in the trace: theirs are made up"),
            std::string::npos);
  EXPECT_EQ(summary(again.counts), "rows 6: used 6");
  EXPECT_NE(again.text().find("live=3 live_bytes=610"), std::string::npos) << again.text();
}

std::string anonymized(std::string_view trace) {
  std::string text;
  const auto out = format::ByteSink::to_string(text);
  const auto writer = make_writer(*out, Form::lines);
  Anonymizer anonymizer(*writer);
  EXPECT_TRUE(read(*format::ByteSource::memory(trace), anonymizer));
  EXPECT_TRUE(out->flush());
  return text;
}

TEST(Anonymizer, LeavesOutWhatTellsWhereATraceComesFrom) {
  const auto text = anonymized(trace_of(
      R"({"op":"define","kind":"site","id":1,"frames":["secret.py:1 in train"]}
{"op":"memalloc","time_ns":1,"thread":"secret-thread","api":"secretMalloc","id":"secret","size":512,"addr":"0x7f00","stream":"0x55aabbcc0010","site":1,"label":"secret"}
{"op":"memalloc","id":140000000000000,"size":8,"stream":"legacy","x-secret":1}
{"op":"x-secret","a":1}
{"op":"mark","text":"secret"}
{"op":"gap","reason":"secret"}
{"op":"free","id":"secret","stream":"0x55aabbcc0010"}
{"op":"end","events":7,"lost":0,"live":1,"live_bytes":8}
)",
      R"(,"name":"secret","description":"secret","source":{"tool":"t","command":"secret --key","host":"secret","os":"secret","options":{"a":"secret"}},"devices":[{"id":0,"name":"secret","uuid":"secret","capacity":100}],"defaults":{"thread":"secret-thread"},"x-secret":1)"));

  EXPECT_EQ(
      text,
      R"({"format":"emmctl-trace","version":"1.0","source":{"tool":"t"},"devices":[{"id":0,"capacity":100}],"defaults":{"thread":"r1"}}
{"op":"memalloc","time_ns":1,"thread":"r1","id":"r1","size":512,"stream":"r1"}
{"op":"memalloc","id":"r2","size":8,"stream":"legacy"}
{"op":"mark","text":"-"}
{"op":"gap"}
{"op":"free","id":"r1","stream":"r1"}
{"op":"end","lost":0,"events":5,"live":1,"live_bytes":8}
)");
}

TEST(Anonymizer, KeepsWhichOperationsStandForNoRow) {
  const auto text = anonymized(trace_of(
      R"({"op":"memalloc","layer":"backing","id":"s1","size":50,"x-pool_id":[0,2],"x-no_row":true}
)"));

  EXPECT_NE(text.find(R"("size":50,"x-no_row":true})"), std::string::npos) << text;
}

/// Everything that was collected; each file is imported by content.
class Collected : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const said = std::getenv("EMM_EXTRA_TRACES");
    const std::filesystem::path folder = said != nullptr ? said : EMM_EXTRA_TRACES;
    if (folder.empty())
      GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the folder of the collected recordings";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const auto& path = entry.path();
      auto snapshot = path;  // a .json beside a snapshot has its statistics
      snapshot.replace_extension(".pickle.gz");
      const bool told_of = path.extension() == ".json" && std::filesystem::exists(snapshot);
      // One of the snapshots under nine settings, and one of the ranks, stands for all here;
      // snapshots.* read them all.
      const auto name = path.filename().string();
      const auto folder_name = path.parent_path().filename();
      const bool one_of_many =
          (folder_name == "torch-settings" && name.find("_expgc_") == name.npos) ||
          (folder_name == "torch-ranks" && name != "ddp_rank2.pickle.gz");
      if (entry.is_regular_file() && path.extension() != ".md" && !told_of && !one_of_many)
        paths_.push_back(path.string());
    }
    std::sort(paths_.begin(), paths_.end());
    ASSERT_GE(paths_.size(), 24u);
  }
  static std::unique_ptr<format::ByteSource> open(const std::string& path) {
    auto source = format::ByteSource::open(path);
    EXPECT_TRUE(source) << describe(source.error());
    return *std::move(source);
  }

  std::vector<std::string> paths_;
};

TEST_F(Collected, FilesAreAccountedForToTheLastRow) {
  for (const auto& path : paths_) {
    const auto source = open(path);
    const auto importer = detect(*source);
    ASSERT_TRUE(importer) << path;
    Trace trace;
    const auto counts = (*importer)->read(*source, trace, {});

    ASSERT_TRUE(counts) << path << ": " << describe(counts.error());
    EXPECT_GT(counts->used, 0u) << path;
    EXPECT_EQ(counts->truncated, 0u) << path;
    EXPECT_EQ(counts->rows, counts->used + counts->unmatched + counts->duplicate + counts->other)
        << path;
  }
}

TEST_F(Collected, FilesAreTheSameOperationsReadFromTheFormatTheyAreWrittenIn) {
  for (const auto& path : paths_) {
    Imported imported;
    imported.with_lines = false;
    std::string written;
    {
      const auto source = open(path);
      ASSERT_TRUE((*detect(*source))->read(*source, imported, {})) << path;
      const auto again = open(path);
      const auto out = format::ByteSink::to_string(written);
      const auto writer = make_writer(*out, Form::lines);
      ASSERT_TRUE((*detect(*again))->read(*again, *writer, {})) << path;
      ASSERT_TRUE(out->flush());
    }
    Imported read_again;
    read_again.with_lines = false;
    const auto source = format::ByteSource::memory(written);
    ASSERT_TRUE((*detect(*source))->read(*source, read_again, {})) << path;

    EXPECT_TRUE(imported.operations == read_again.operations) << path;
  }
}

TEST_F(Collected, FilesExportedAreTheSameExportedAgain) {
  for (const auto& path : paths_) {
    for (const std::string_view format : {"rmm-csv", "dsa-csv"}) {
      const auto first = write(format, *open(path));
      const auto second = write(format, first.text);

      EXPECT_EQ(first.error, "") << path;
      EXPECT_EQ(second.error, "") << path;
      EXPECT_TRUE(first.text == second.text) << path << " as " << format;
    }
  }
}

TEST_F(Collected, FilesExportedAreTheSameRequestsImported) {
  for (const auto& path : paths_) {
    const auto exported = write("rmm-csv", *open(path));

    EXPECT_TRUE(requests_of(*open(path)) == requests_of(*format::ByteSource::memory(exported.text)))
        << path;
  }
}

TEST(Exports, OfGeneratedTracesAreTheSameRequestsImported) {
  for (const auto& kind : generate_kinds()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      std::string trace;
      const auto out = format::ByteSink::to_string(trace);
      ASSERT_TRUE(generate({.kind = std::string(kind.name), .events = 2000, .seed = seed},
                           *make_writer(*out, Form::lines)));
      ASSERT_TRUE(out->flush());
      const auto expected = requests_of(*format::ByteSource::memory(trace));
      ASSERT_FALSE(expected.empty());

      for (const std::string_view format : {"rmm-csv", "torch-pickle"}) {
        const auto exported = write(format, trace);
        EXPECT_TRUE(requests_of(*format::ByteSource::memory(exported.text)) == expected)
            << kind.name << ", seed " << seed << " as " << format;
      }
      const auto problem = write("dsa-csv", trace);
      EXPECT_EQ(write("dsa-csv", problem.text).text, problem.text)
          << kind.name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace emm::trace
