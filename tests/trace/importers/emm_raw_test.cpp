// Raw recordings, made here record by record: what no recorded program gives on demand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver/call.hpp"
#include "exchange/check.hpp"
#include "exchange/importer.hpp"
#include "exchange/merge_levels.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "raw/raw.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

using record::Call;
using record::CallRecord;

/// A recording of one thread.
class Raw {
 public:
  Raw() {
    std::memcpy(header_.magic, record::kMagic, sizeof record::kMagic);
    header_.version = record::kVersion;
    header_.header_bytes = record::kHeaderBytes;
    header_.block_bytes = record::kBlockBytes;
    header_.record_bytes = sizeof(CallRecord);
    header_.later_ticks = header_.later_ns = 1'000'000;
    add(record::kNoPlace, Call::thread).address = 77;
  }

  CallRecord& add(std::uint64_t seq, Call call) {
    CallRecord made{};
    made.seq = seq;
    made.ticks = seq == record::kNoPlace ? 0 : 100 * seq;
    made.call = call;
    made.device = 255;
    records_.push_back(made);
    return records_.back();
  }
  CallRecord& last() { return records_.back(); }
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

  /// Its last block stands a second time at the end of the file, as a recorder leaves it that is
  /// killed while it empties the block.
  void copy_last_block() { copies_last_block_ = true; }

  void context(std::size_t number, std::uint64_t handle, std::uint64_t device) {
    header_.contexts[number - 1] = {handle, device};
  }

  std::string bytes() const {
    std::string out(record::kHeaderBytes, '\0');
    std::memcpy(out.data(), &header_, sizeof header_);
    record::BlockHeader block{};
    block.magic = record::kBlockMagic;
    std::size_t last_block = 0;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (i % record::kBlockRecords == 0) {
        ++block.turn;
        last_block = out.size();
        out.append(reinterpret_cast<const char*>(&block), sizeof block);
      }
      out.append(reinterpret_cast<const char*>(&records_[i]), sizeof(CallRecord));
    }
    if (copies_last_block_) {
      out.resize(last_block + record::kBlockBytes);
      out.append(out.substr(last_block));
    }
    return out;
  }

 private:
  record::FileHeader header_{};
  std::vector<CallRecord> records_;
  bool copies_last_block_ = false;
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

struct WithCounts {
  std::string text;
  ImportCounts counts;
};
WithCounts import_with_counts(const Raw& raw) {
  const auto bytes = raw.bytes();
  const auto source = format::ByteSource::memory(bytes);
  WithCounts made;
  const auto out = format::ByteSink::to_string(made.text);
  const auto writer = make_writer(*out, Form::lines);
  const auto importer = find_importer("emm-raw");
  EXPECT_TRUE(importer);
  auto counts = (*importer)->read(*source, *writer, {});
  EXPECT_TRUE(counts) << describe(counts.error());
  if (counts) made.counts = *std::move(counts);
  EXPECT_TRUE(out->close());
  return made;
}
std::vector<std::string> imported(const Raw& raw) { return lines_of(import_with_counts(raw).text); }

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

TEST(RawRecording, ABlockThatStandsTwiceCountsOnce) {
  Raw once, twice;
  for (Raw* const raw : {&once, &twice}) {
    raw->text(1, "a.py:7 f");
    raw->stack(5, {1});
    for (std::uint64_t i = 1; i <= record::kBlockRecords; ++i) {
      if (i % 3 == 0) raw->about(5, 0);
      raw->memory(2 * i, 0x1000 * i, 512);
      if (i % 2 == 0) raw->end(2 * i + 1, 0x1000 * i);
    }
  }
  twice.copy_last_block();

  EXPECT_EQ(imported(twice), imported(once));
}

TEST(RawRecording, AStackThatWasLostIsNoSite) {
  Raw raw;
  raw.about(9, 0);
  raw.memory(1, 0x1000, 512);

  EXPECT_EQ(imported(raw).front(),
            R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000"})");
}

TEST(RawRecording, AnAllocationIsOfThePoolThatItsDeviceHasThen) {
  Raw raw;
  const auto pool_call = [&](std::uint64_t seq, Call call, std::uint64_t pool) {
    raw.add(seq, call).address = pool;
  };
  const auto allocate = [&](std::uint64_t seq, std::uint64_t address) {
    raw.add(seq, Call::mem_alloc_async).address = address;
    raw.last().size = 512;
  };
  pool_call(1, Call::device_get_pool, 0xd0);  // the current one, which nobody has set: the default
  pool_call(2, Call::pool_create, 0xa0);
  pool_call(3, Call::device_set_pool, 0xa0);
  allocate(4, 0x1000);
  pool_call(5, Call::device_set_pool, 0xd0);
  allocate(6, 0x2000);

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"pool_create","pool":"p1"})",
          R"({"op":"x-device_set_pool","pool":"p1","on_device":0})",
          R"({"op":"memalloc","api":"cuMemAllocAsync","id":1,"size":512,"pool":"p1","addr":"0x1000"})",
          R"({"op":"x-device_set_pool","pool":"default","on_device":0})",
          R"({"op":"memalloc","api":"cuMemAllocAsync","id":2,"size":512,"addr":"0x2000"})",
          R"({"op":"end","lost":0,"events":5,"live":2,"live_bytes":1024})"}));
}

TEST(RawRecording, ARegistrationThatOverlapsIsInTheBufferThatItOverlaps) {
  Raw raw;
  const auto pin = [&](std::uint64_t seq, std::uint64_t address, std::int32_t code) {
    raw.add(seq, Call::mem_host_register).address = address;
    raw.last().size = 8192;
    raw.last().result = code;
  };
  pin(1, 0x10200, 0);
  pin(2, 0x11000, 712);  // inside
  pin(3, 0xf000, 712);   // from below
  pin(4, 0x10400, 1);    // for another reason
  raw.add(5, Call::mem_host_unregister).address = 0x10200;
  pin(6, 0x11000, 712);  // of what this recording does not have

  const auto pinned = [](int id, const std::string& place) {
    return R"({"op":"mempin","api":"cuMemHostRegister","id":)" + std::to_string(id) +
           R"(,"size":8192,)" + (id == 1 ? R"("addr":"0x10200",)" : "") +
           R"("mapped":false,"portable":false,"read_only":false,"io":false,)" + place + "}";
  };
  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          pinned(1, R"("buffer":"b1","page_offset":512)"),
          pinned(
              2,
              R"("buffer":"b1","offset":3584,"page_offset":0,"result":{"outcome":"error","code":712})"),
          pinned(3, R"("buffer":"b1","page_offset":512,"result":{"outcome":"error","code":712})"),
          pinned(4, R"("buffer":"b2","page_offset":1024,"result":{"outcome":"invalid","code":1})"),
          R"({"op":"free","api":"cuMemHostUnregister","id":1})",
          pinned(5, R"("buffer":"b3","page_offset":0,"result":{"outcome":"error","code":712})"),
          R"({"op":"end","lost":0,"events":6,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, MemoryOfOthersEndsWithoutAnEndOfOurs) {
  Raw raw;
  raw.add(1, Call::mem_import).address = 0x70;
  raw.add(2, Call::mem_map).address = 0x1000;
  raw.last().size = 512;
  raw.last().stream = 0x70;
  raw.add(3, Call::mem_release).address = 0x70;
  raw.add(4, Call::mem_unmap).address = 0x1000;
  raw.last().size = 512;
  raw.add(5, Call::external_map_buffer).address = 0x2000;
  raw.last().size = ~std::uint64_t{0};  // more than a number of JSON holds
  raw.end(6, 0x2000);
  raw.end(7, 0x2000);  // nobody's

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"x-mem_import","memory":"0x70","kind":0})",
          R"({"op":"x-mem_map","addr":"0x1000","size":512,"offset":0,"memory":"0x70"})",
          R"({"op":"x-mem_release","memory":"0x70"})",
          R"({"op":"x-mem_unmap","addr":"0x1000","size":512})",
          R"({"op":"x-external_map_buffer","addr":"0x2000","size":"0xffffffffffffffff","external":"0x0","offset":0})",
          R"({"op":"x-free_imported","addr":"0x2000"})",
          R"({"op":"end","lost":0,"events":6,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, AContextEndsWithTheLastDetach) {
  Raw raw;
  raw.add(1, Call::ctx_attach).address = 0xc0;
  raw.add(2, Call::ctx_detach).address = 0xc0;
  raw.last().extra = 1;
  raw.memory(3, 0x1000, 512);
  raw.last().context = 1;
  raw.add(4, Call::ctx_detach).address = 0xc0;
  raw.last().extra = 1;

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"x-ctx_attach","handle":"0xc0"})", R"({"op":"x-ctx_detach","handle":"0xc0"})",
          R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000"})",
          R"({"op":"context_destroy",)",
          R"({"op":"end","lost":0,"events":4,"live":0,"live_bytes":0})"}));
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

TEST(RawRecording, ThePrimaryContextThatNobodyUsedEndsNoOther) {
  Raw raw;
  raw.context(1, 0xc1, 0);
  raw.add(1, Call::ctx_retain).address = 0xc0;
  raw.add(2, Call::ctx_create).address = 0xc1;
  raw.memory(3, 0x1000, 512);
  raw.last().context = 1;
  raw.add(4, Call::ctx_release);
  raw.end(5, 0x1000);

  EXPECT_EQ(imported(raw),
            (std::vector<std::string>{
                R"({"op":"x-ctx_create","handle":"0xc1","on_device":0})",
                R"({"op":"memalloc","api":"cuMemAlloc","id":1,"size":512,"addr":"0x1000"})",
                R"({"op":"free","api":"cuMemFree","id":1})",
                R"({"op":"end","lost":0,"events":3,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, ACaptureOfAThreadsOwnStreamIsThatThreadsAlone) {
  Raw raw;
  const auto allocate = [&](std::uint64_t seq, std::uint64_t address) {
    raw.add(seq, Call::mem_alloc_async).address = address;
    raw.last().size = 512;
    raw.last().stream = 2;
  };
  raw.add(1, Call::capture_begin).stream = 2;
  allocate(2, 0x1000);
  raw.add(record::kNoPlace, Call::thread).address = 78;
  allocate(3, 0x2000);
  raw.add(record::kNoPlace, Call::thread).address = 77;
  raw.add(4, Call::capture_end).stream = 2;
  raw.last().address = 0x90;

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"graph_begin","stream":"per_thread","graph":"g1"})",
          R"({"op":"x-captured_alloc","size":512,"addr":"0x1000"})",
          R"({"op":"memalloc","api":"cuMemAllocAsync","id":1,"size":512,"stream":"per_thread","addr":"0x2000"})",
          R"({"op":"graph_end","stream":"per_thread","graph":"g1"})",
          R"({"op":"end","lost":0,"events":4,"live":1,"live_bytes":512})"}));
}

TEST(RawRecording, AProgramMayMakeMoreStreamsThanATraceHasNames) {
  Raw raw;
  constexpr std::uint64_t kStreams = 70'000;
  for (std::uint64_t i = 0; i < kStreams; ++i) {
    raw.add(2 * i + 1, Call::stream_create).stream = 0x50 + i % 7;
    raw.add(2 * i + 2, Call::stream_destroy).stream = 0x50 + i % 7;
  }

  const auto bytes = raw.bytes();
  const auto source = format::ByteSource::memory(bytes);
  const auto importer = find_importer("emm-raw");
  ASSERT_TRUE(importer);
  const auto report = check(*source, **importer);
  ASSERT_TRUE(report) << describe(report.error());
  EXPECT_EQ(report->errors, 0U);
}

TEST(RawRecording, MemoryIsOnItsOwnDeviceAndNotOnThatOfTheContext) {
  Raw raw;
  raw.context(1, 0xc0, 0);
  const auto in_context = [&](std::uint64_t seq, Call call, std::uint64_t address) -> CallRecord& {
    auto& made = raw.add(seq, call);
    made.address = address;
    made.device = 0;
    made.context = 1;
    return made;
  };
  constexpr std::uint64_t kHost = 0xffffffff;
  auto& on_one = in_context(1, Call::mem_create, 0x70);
  on_one.size = 512;
  on_one.stream = 1;
  auto& on_host = in_context(2, Call::mem_create, 0x71);
  on_host.size = 512;
  on_host.stream = kHost;
  in_context(3, Call::mem_release, 0x71);
  in_context(4, Call::pool_create, 0xa0).stream = 1;
  auto& from_pool = in_context(5, Call::mem_alloc_async, 0x1000);
  from_pool.size = 1024;
  from_pool.extra = 0xa0;
  in_context(6, Call::mem_free_async, 0x1000);
  in_context(7, Call::ctx_destroy, 0).extra = 1;
  in_context(8, Call::mem_release, 0x70);

  EXPECT_EQ(
      imported(raw),
      (std::vector<std::string>{
          R"({"op":"memalloc","device":1,"api":"cuMemCreate","kind":"physical","id":1,"size":512})",
          R"({"op":"x-mem_create","memory":"0x71","size":512})",
          R"({"op":"x-mem_release","memory":"0x71"})",
          R"({"op":"pool_create","device":1,"pool":"p1"})",
          R"({"op":"memalloc","device":1,"api":"cuMemAllocFromPoolAsync","id":2,"size":1024,"pool":"p1","addr":"0x1000"})",
          R"({"op":"free","device":1,"api":"cuMemFreeAsync","id":2})",
          R"({"op":"context_destroy",)", R"({"op":"free","device":1,"api":"cuMemRelease","id":1})",
          R"({"op":"end","lost":0,"events":8,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, AGraphAtTheHandleOfADestroyedOneIsAnother) {
  Raw raw;
  raw.add(1, Call::capture_begin).stream = 0x50;
  raw.add(2, Call::capture_end).stream = 0x50;
  raw.last().address = 0x90;
  raw.add(3, Call::graph_destroy).address = 0x90;
  raw.add(4, Call::graph_instantiate).address = 0xe0;
  raw.last().extra = 0x90;
  raw.add(5, Call::graph_launch).address = 0xe0;
  raw.last().stream = 0x50;

  EXPECT_EQ(imported(raw), (std::vector<std::string>{
                               R"({"op":"graph_begin","stream":"s1","graph":"g1"})",
                               R"({"op":"graph_end","stream":"s1","graph":"g1"})",
                               R"({"op":"graph_launch","stream":"s1","graph":"g2"})",
                               R"({"op":"end","lost":0,"events":3,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, ACallThatFailedSaysWhichItWasAndOfWhat) {
  Raw raw;
  const auto failed = [&](std::uint64_t seq, Call call, std::uint64_t address,
                          std::uint64_t stream) {
    raw.add(seq, call).address = address;
    raw.last().stream = stream;
    raw.last().result = 400;
  };
  failed(1, Call::stream_destroy, 0, 0x50);
  failed(2, Call::event_record, 0xe0, 0x50);
  failed(3, Call::stream_wait_event, 0xe0, 0x50);
  failed(4, Call::pool_destroy, 0xa0, 0);

  EXPECT_EQ(imported(raw),
            (std::vector<std::string>{
                R"({"op":"x-failed","code":400,"api":"cuStreamDestroy","addr":"0x50"})",
                R"({"op":"x-failed","code":400,"api":"cuEventRecord","addr":"0xe0"})",
                R"({"op":"x-failed","code":400,"api":"cuStreamWaitEvent","addr":"0xe0"})",
                R"({"op":"x-failed","code":400,"api":"cuMemPoolDestroy","addr":"0xa0"})",
                R"({"op":"end","lost":0,"events":4,"live":0,"live_bytes":0})"}));
}

TEST(RawRecording, EveryCallThatHasANumberIsKnown) {
  for (auto call = Call::mem_alloc; call != Call::count_;
       call = static_cast<Call>(static_cast<std::uint16_t>(call) + 1)) {
    if (call == Call::frame_text || call == Call::stack || call == Call::about) continue;
    Raw raw;
    raw.add(1, call).address = 0x1000;
    for (const auto& note : import_with_counts(raw).counts.notes) {
      EXPECT_EQ(note.find("later version"), std::string::npos) << static_cast<int>(call);
    }
  }
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
          R"({"op":"memalloc","seq":10,"layer":"backing","api":"cuMemAlloc","id":2,"size":512,"addr":"0x4000"})",
          R"({"op":"end","lost":0,"events":5,"live":0,"live_bytes":0})"}));
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
          R"({"op":"memalloc","seq":11,"id":"q4","size":4194304,"addr":"0x200000"})",
          R"({"op":"end","lost":0,"events":11,"live":2,"live_bytes":6291456})"}));
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
