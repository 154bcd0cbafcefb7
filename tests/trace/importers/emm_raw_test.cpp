// Raw recordings, made here record by record: what no recorded program gives on demand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "record/raw.hpp"
#include "trace/importer.hpp"
#include "trace/merge_levels.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

using record::Call;
using record::Record;

/// A recording of one thread.
class Raw {
 public:
  Raw() {
    std::memcpy(header_.magic, record::kMagic, sizeof record::kMagic);
    header_.version = record::kVersion;
    header_.header_bytes = record::kHeaderBytes;
    header_.block_bytes = record::kBlockBytes;
    header_.record_bytes = sizeof(Record);
    header_.later_ticks = header_.later_ns = 1'000'000;
    add(record::kNoPlace, Call::thread).address = 77;
  }

  Record& add(std::uint64_t seq, Call call) {
    Record made{};
    made.seq = seq;
    made.ticks = seq == record::kNoPlace ? 0 : 100 * seq;
    made.call = call;
    made.device = 255;
    records_.push_back(made);
    return records_.back();
  }
  Record& last() { return records_.back(); }
  void memory(std::uint64_t seq, std::uint64_t address, std::uint64_t size) {
    auto& made = add(seq, Call::mem_alloc);
    made.address = address;
    made.size = size;
  }
  void end(std::uint64_t seq, std::uint64_t address) { add(seq, Call::mem_free).address = address; }
  void about(std::uint64_t site, std::uint64_t request) {
    auto& made = add(record::kNoPlace, Call::about);
    made.address = site;
    made.size = request;
  }
  void text(std::uint32_t number, std::string_view words) {
    constexpr std::size_t kPiece = 32;
    for (std::size_t at = 0; at < words.size(); at += kPiece) {
      auto& made = add(record::kNoPlace, Call::frame_text);
      made.ticks = number;
      made.duration = static_cast<std::uint32_t>(words.size());
      made.flags = static_cast<std::uint32_t>(at / kPiece);
      char piece[kPiece] = {};
      const auto part = words.substr(at, kPiece);
      std::memcpy(piece, part.data(), part.size());
      std::memcpy(&made.address, piece, sizeof piece);
    }
  }
  void stack(std::uint32_t number, std::vector<std::uint32_t> frames) {
    auto& made = add(record::kNoPlace, Call::stack);
    made.ticks = number;
    made.duration = static_cast<std::uint32_t>(frames.size());
    std::memcpy(&made.address, frames.data(), frames.size() * sizeof frames[0]);
  }

  std::string bytes() const {
    std::string out(record::kHeaderBytes, '\0');
    std::memcpy(out.data(), &header_, sizeof header_);
    record::BlockHeader block{};
    block.magic = record::kBlockMagic;
    out.append(reinterpret_cast<const char*>(&block), sizeof block);
    for (const auto& one : records_) out.append(reinterpret_cast<const char*>(&one), sizeof one);
    return out;
  }

 private:
  record::FileHeader header_{};
  std::vector<Record> records_;
};

/// The operations as lines, without header, times and threads.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find('\n') + 1; at < text.size();) {
    const auto end = text.find('\n', at);
    auto line = text.substr(at, end - at);
    for (const std::string_view member : {"\"time_ns\":", "\"duration_ns\":", "\"thread\":"}) {
      const auto begin = line.find(member);
      if (begin == line.npos) continue;
      line.erase(begin, line.find_first_of(",}", begin) + 1 - begin);
    }
    found.push_back(line);
    at = end + 1;
  }
  return found;
}

std::vector<std::string> imported(const Raw& raw) {
  const auto bytes = raw.bytes();
  const auto source = format::ByteSource::memory(bytes);
  std::string text;
  const auto out = format::ByteSink::to_string(text);
  const auto writer = make_writer(*out, Form::lines);
  const auto importer = find_importer("emm-raw");
  EXPECT_TRUE(importer);
  const auto counts = (*importer)->read(*source, *writer, {});
  EXPECT_TRUE(counts) << describe(counts.error());
  EXPECT_TRUE(out->close());
  return lines_of(text);
}

TEST(RawRecording, EachStackIsDefinedBeforeItsFirstCall) {
  Raw raw;
  raw.text(1, "program:0 _Z4loadm");
  raw.text(2, "a/path/that/is/longer/than/one/piece/of/32.py:7 main");
  raw.stack(5, {1, 2});
  raw.about(5, 0);
  raw.memory(1, 0x1000, 512);
  raw.about(5, 0);
  raw.memory(2, 0x2000, 512);
  raw.memory(3, 0x3000, 512);

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"x({"op":"define","kind":"site","id":5,"frames":["program:0 load(unsigned long)","a/path/that/is/longer/than/one/piece/of/32.py:7 main"]})x",
          R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000","site":5})",
          R"({"op":"memalloc","api":"cuMemAlloc","id":2,"size":512,"addr":"0x2000","site":5})",
          R"({"op":"memalloc","api":"cuMemAlloc","id":3,"size":512,"addr":"0x3000"})",
          R"({"op":"end","lost":0,"events":4,"live":3,"live_bytes":1536})"}));
}

TEST(RawRecording, AFrameHasItsLettersAndNothingThatATerminalObeys) {
  Raw raw;
  raw.text(1, "\xc3\xbc/name.py:7 gr\xc3\xb6\xc3\x9f\x65r");
  raw.text(2, "\x1b[2J\xff:1 \xc3");
  raw.stack(5, {1, 2});
  raw.about(5, 0);
  raw.memory(1, 0x1000, 512);

  EXPECT_EQ(imported(raw).front(),
            "{\"op\":\"define\",\"kind\":\"site\",\"id\":5,\"frames\":"
            "[\"\xc3\xbc/name.py:7 gr\xc3\xb6\xc3\x9f\x65r\",\"?[2J?:1 ?\"]}");
}

TEST(RawRecording, AStackThatWasLostIsNoSite) {
  Raw raw;
  raw.about(9, 0);
  raw.memory(1, 0x1000, 512);

  EXPECT_EQ(imported(raw).front(),
            R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000"})");
}

TEST(RawRecording, WhatLivedBeforeAWindowIsThereAndASecondWindowTellsItAnew) {
  Raw raw;
  const auto before = [&](std::uint64_t seq, std::uint64_t address, std::uint64_t size) {
    raw.memory(seq, address, size);
    raw.last().flags = record::record_flag::preexisting;
  };
  raw.add(1, Call::window).address = 1;
  before(2, 0x1000, 512);
  raw.add(3, Call::window).address = 2;
  before(4, 0x2000, 1024);
  raw.end(5, 0x2000);

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000","preexisting":true})",
          R"({"op":"gap","reason":"recording was off"})", R"({"op":"free","id":1,"x-no_row":true})",
          R"({"op":"memalloc","api":"cuMemAlloc","id":2,"size":1024,"addr":"0x2000"})",
          R"({"op":"free","api":"cuMemFree","id":2})",
          R"({"op":"end","lost":0,"events":5,"live":0,"live_bytes":0})"}));
}

class Files : public testing::Test {
 protected:
  Files() { EXPECT_NE(mkdtemp(folder_), nullptr); }
  ~Files() override {
    for (const auto& path : written_) unlink(path.c_str());
    rmdir(folder_);
  }
  std::string file(const std::string& name, const std::string& bytes) {
    const auto path = std::string(folder_) + "/" + name;
    const auto out = format::ByteSink::open(path);
    EXPECT_TRUE(out && (*out)->write(bytes) && (*out)->close());
    written_.push_back(path);
    return path;
  }
  /// Merges into text().
  Result<ImportCounts> merged(decltype(merge_levels)* how, const std::string& requests,
                              const std::string& calls) {
    const auto out = format::ByteSink::to_string(text_);
    auto counts = how(requests, calls, *make_writer(*out, Form::lines));
    EXPECT_TRUE(out->close());
    return counts;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  char folder_[64] = "/tmp/emmctl-merge-XXXXXX";
  std::vector<std::string> written_;
};

TEST_F(Files, CallsStandBeneathTheRequestsThatCausedThem) {
  Raw raw;
  raw.about(0, 1);
  raw.memory(1, 0x1000, 2048);
  raw.about(0, 2);
  raw.end(4, 0x1000);
  raw.memory(5, 0x4000, 512);
  const auto calls = file("1.emmraw", raw.bytes());
  const auto requests = file(
      "1.requests.jsonl",
      R"({"format":"emmctl-trace","version":"1.0","level":"emm","clock":{"source":"CLOCK_MONOTONIC","start_ns":0}}
{"op":"memalloc","seq":5,"thread":77,"id":"q1","size":1000,"x-request":1}
{"op":"free","seq":7,"thread":77,"id":"q1","x-request":2}
{"op":"end","events":2}
)");

  const auto counts = merged(merge_levels, requests, calls);

  ASSERT_TRUE(counts) << describe(counts.error());
  EXPECT_EQ(counts->rows, 3u);
  EXPECT_EQ(
      lines_of(text()),
      (std::vector<std::string>{
          R"({"op":"memalloc","seq":2,"layer":"backing","api":"cuMemAlloc","id":1,"size":2048,"addr":"0x1000","parent":5})",
          R"({"op":"memalloc","seq":5,"id":"q1","size":1000})",
          R"({"op":"free","seq":7,"id":"q1"})",
          R"({"op":"free","seq":8,"layer":"backing","api":"cuMemFree","id":1,"parent":7})",
          R"({"op":"memalloc","seq":10,"layer":"backing","api":"cuMemAlloc","id":2,"size":512,"addr":"0x4000"})"}));
}

TEST_F(Files, SegmentsOfPyTorchsHistoryAreTheCallsAtTheirAddresses) {
  Raw raw;
  raw.memory(1, 0x9000, 512);  // a library's, which the history does not know
  raw.memory(2, 0x200000, 2 << 20);
  raw.memory(3, 0x800000, 2 << 20);
  raw.end(4, 0x200000);
  raw.memory(5, 0x200000, 4 << 20);
  const auto calls = file("1.emmraw", raw.bytes());
  const auto history = file(
      "1.requests.jsonl",
      R"({"format":"emmctl-trace","version":"1.0","level":"framework","source":{"framework":"torch","options":{"allocator_settings":{}}}}
{"op":"memalloc","time_ns":5,"layer":"backing","id":"s1","size":2097152,"addr":"0x200000"}
{"op":"memalloc","time_ns":6,"id":1,"size":1000,"addr":"0x200000"}
{"op":"memalloc","time_ns":7,"id":2,"size":512,"addr":"0x200400"}
{"op":"memalloc","time_ns":8,"layer":"backing","id":"s2","size":2097152,"addr":"0x800000"}
{"op":"memalloc","time_ns":9,"id":3,"size":2097152,"addr":"0x800000"}
{"op":"free","time_ns":10,"id":1}
{"op":"free","time_ns":10,"id":2}
{"op":"free","time_ns":11,"layer":"backing","id":"s1"}
{"op":"memalloc","time_ns":12,"layer":"backing","id":"s3","size":4194304,"addr":"0x200000"}
{"op":"memalloc","time_ns":13,"id":4,"size":4194304,"addr":"0x200000"}
)");

  const auto counts = merged(merge_history, history, calls);

  ASSERT_TRUE(counts) << describe(counts.error());
  EXPECT_EQ(counts->rows, 5u);
  EXPECT_TRUE(counts->notes.empty());
  auto lines = lines_of(text());
  for (auto& line : lines) {  // the clock has its own test
    const auto at = line.find("\"time_ns\"");
    if (at != line.npos) line.erase(at, line.find(',', at) + 1 - at);
  }
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          R"({"op":"memalloc","seq":1,"layer":"backing","api":"cuMemAlloc","id":1,"size":512,"addr":"0x9000"})",
          R"({"op":"memalloc","seq":2,"layer":"backing","api":"cuMemAlloc","id":2,"size":2097152,"addr":"0x200000","parent":3})",
          R"({"op":"memalloc","seq":3,"id":"q1","size":1000,"addr":"0x200000"})",
          R"({"op":"memalloc","seq":4,"id":"q2","size":512,"addr":"0x200400"})",
          R"({"op":"memalloc","seq":5,"layer":"backing","api":"cuMemAlloc","id":3,"size":2097152,"addr":"0x800000","parent":6})",
          R"({"op":"memalloc","seq":6,"id":"q3","size":2097152,"addr":"0x800000"})",
          R"({"op":"free","seq":7,"id":"q1"})", R"({"op":"free","seq":8,"id":"q2"})",
          R"({"op":"free","seq":9,"layer":"backing","api":"cuMemFree","id":2})",
          R"({"op":"memalloc","seq":10,"layer":"backing","api":"cuMemAlloc","id":4,"size":4194304,"addr":"0x200000","parent":11})",
          R"({"op":"memalloc","seq":11,"id":"q4","size":4194304,"addr":"0x200000"})"}));
}

TEST_F(Files, AHistoryOfAnotherProcessIsRefused) {
  Raw raw;
  raw.memory(1, 0x9000, 512);
  const auto calls = file("1.emmraw", raw.bytes());
  const auto history = file(
      "1.requests.jsonl",
      R"({"format":"emmctl-trace","version":"1.0","level":"framework","source":{"framework":"torch"}}
{"op":"memalloc","layer":"backing","id":"s1","size":2097152,"addr":"0x200000"}
{"op":"memalloc","id":1,"size":1000,"addr":"0x200000"}
)");

  const auto counts = merged(merge_history, history, calls);

  ASSERT_FALSE(counts);
  EXPECT_NE(describe(counts.error()).find("none of 1 segments of PyTorch's history"),
            std::string::npos);
}

}  // namespace
}  // namespace emm::trace
