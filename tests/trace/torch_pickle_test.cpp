#include "exchange/exporters/torch_pickle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "format/json_value.hpp"
#include "format/pickle.hpp"
#include "format/pickle_writer.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/generate.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::trace {
namespace {

using format::JsonValue;
using format::PickleWriter;

void put(PickleWriter& pickle, const JsonValue& value) {
  switch (value.type) {
    case JsonValue::Type::null:
      pickle.text("None");
      break;
    case JsonValue::Type::boolean:
      pickle.truth(*value.as_bool());
      break;
    case JsonValue::Type::string:
      pickle.text(*value.as_string());
      break;
    case JsonValue::Type::number:
      if (const auto number = value.as_u64()) {
        pickle.number(*number);
      } else if (const auto negative = value.as_i64()) {
        pickle.negative(static_cast<std::int32_t>(*negative));
      } else {
        pickle.real(*value.as_double());
      }
      break;
    case JsonValue::Type::array:
      pickle.list();
      pickle.mark();
      for (const auto& element : value.elements) put(pickle, element);
      pickle.appends();
      break;
    case JsonValue::Type::object:
      pickle.dict();
      pickle.mark();
      for (const auto& [key, at, member] : value.members) {
        pickle.text(key);
        put(pickle, member);
      }
      pickle.setitems();
      break;
  }
}

/// What Python would dump of that value.
std::string pickled(std::string_view json) {
  const auto value = format::parse_json(json);
  EMM_ASSERT(value);
  std::string bytes;
  const auto sink = format::ByteSink::to_string(bytes);
  PickleWriter pickle(*sink);
  put(pickle, *value);
  EMM_ASSERT(pickle.end());
  return bytes;
}

Imported read(std::string_view json, bool partial = false) {
  return import_text("torch-pickle", pickled(json), partial);
}

/// A snapshot whose device 0 has these rows, and these segments at the end.
std::string snapshot(std::string_view rows, std::string_view segments = "",
                     std::string_view more = "") {
  std::string out = "{\"segments\": [";
  out.append(segments)
      .append("], \"device_traces\": [[")
      .append(rows)
      .append("]]")
      .append(more)
      .append("}");
  return out;
}

std::string notes(const Imported& log) { return text::join(log.counts.notes, "\n"); }

TEST(TorchPickle, ReadsSnapshotsOfPyTorch21) {
  const auto log = read(snapshot(
      R"({"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "frames": []},
         {"action": "alloc", "addr": 4096, "size": 100, "stream": 0,
          "frames": [{"name": "forward", "filename": "model.py", "line": 88}, {"name": "main", "filename": "??", "line": 0}]},
         {"action": "free_requested", "addr": 4096, "size": 100, "stream": 0, "frames": []},
         {"action": "free_completed", "addr": 4096, "size": 100, "stream": 0, "frames": []},
         {"action": "segment_free", "addr": 4096, "size": 2097152, "stream": 0})"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=2097152 addr=0x1000\n"
            "define site id=1 [model.py:88 forward, ?? main]\n"
            "memalloc id=1 size=100 addr=0x1000 site=1\n"
            "free id=1\n"
            "free backing id=s1\n"
            "end events=5 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 5: used 5");
  EXPECT_EQ(notes(log), "");
  EXPECT_TRUE(log.header.complete);
}

TEST(TorchPickle, ReadsSnapshotsWithTimesSettingsAndAnnotations) {
  const auto log = read(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 7, "time_us": 1700000000000010},
         {"action": "snapshot", "addr": 0, "size": 100, "stream": 0, "time_us": 1700000000000030},
         {"action": "oom", "device_free": 5000, "size": 4000, "stream": 0, "time_us": 1700000000000040})",
      R"({"device": 0, "address": 4096, "total_size": 2097152, "stream": 7, "is_expandable": false,
          "blocks": [{"address": 4096, "size": 512, "requested_size": 100, "state": "active_allocated"}]})",
      R"(, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": false,
           "garbage_collection_threshold": 0.5, "roundup_power2_divisions": {"1": 0}},
          "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 1700000000000000},
                                   {"stage": "END", "name": "step", "device": 0, "time_us": 1700000000000020},
                                   {"stage": "END"}])"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=2097152 addr=0x1000 preexisting stream=0x7\n"
            "mark time_ns=0 step begin\n"
            "memalloc id=1 size=100 addr=0x1000 granted=512 stream=0x7 time_ns=10000\n"
            "mark time_ns=20000 step end\n"
            "mark time_ns=30000 snapshot \"x-action\":\"snapshot\",\"x-size\":100\n"
            "memalloc id=2 size=4000 time_ns=40000 oom \"x-device_free\":5000\n"
            "end events=6 live=1 live_bytes=100");
  EXPECT_EQ(summary(log.counts), "rows 6: used 5, other 1");
  EXPECT_EQ(log.header.clock_start_realtime_ns, 1'700'000'000'000'000'000u);
  EXPECT_EQ(
      log.header.source_options,
      R"({"allocator_settings":{"PYTORCH_CUDA_ALLOC_CONF":"","max_split_size":-1,"expandable_segments":false,)"
      R"("garbage_collection_threshold":0.5,"roundup_power2_divisions":{"1":0}},)"
      R"("at_end":{"segments":1,"reserved_bytes":2097152,"active_blocks":1,"allocated_bytes":512,)"
      R"("requested_bytes":100,"pending_blocks":0}})");
  EXPECT_EQ(notes(log),
            "1 segment of 2.00 MiB was there before the first row: the recording began "
            "later, or its ring lost "
            "the oldest rows\n"
            "1 allocations failed with room on the device, 4.88 KiB or more: a limit was set "
            "elsewhere, as by a memory "
            "fraction");
}

TEST(TorchPickle, KeepsWhatLaterVersionsSayOfARow) {
  const auto log = read(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "time_us": 1, "compile_context": "N/A",
          "user_metadata": "weights", "pool_id": [0, 3], "forward_frames": ["a"]},
         {"action": "alloc", "addr": 8192, "size": 100, "stream": 0, "time_us": 2, "compile_context": "0/1",
          "user_metadata": "", "pool_id": [0, 0], "category": 1},
         {"action": "user_defined", "addr": 0, "size": 0, "stream": 0, "time_us": 3, "user_metadata": "epoch"},
         {"action": "defragment", "addr": 0, "size": 0, "stream": 0, "time_us": 3})",
      "",
      R"(, "categories": ["unknown", "gradients"],
          "allocator_settings": {"trace_alloc_max_entries": 2, "trace_alloc_overflowed": true})"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "gap the ring of events overflowed\n"
            "memalloc id=1 size=100 addr=0x1000 time_ns=0 \"weights\" \"x-pool_id\":[0,3]\n"
            "memalloc id=2 size=100 addr=0x2000 time_ns=1000 \"gradients\" "
            "\"x-compile_context\":\"0/1\"\n"
            "mark time_ns=2000 epoch \"x-action\":\"user_defined\"\n"
            "end events=4 live=2 live_bytes=200");
  EXPECT_EQ(summary(log.counts), "rows 4: used 3, other 1");
  EXPECT_FALSE(log.header.complete);
  EXPECT_EQ(notes(log),
            "the oldest events are lost: the ring of 2 events overflowed\n"
            "live allocations: 2 by the rows, 0 by the segments at the end\n"
            "live bytes: 200 by the rows, 0 by the segments at the end\n"
            "1 rows say \"defragment\", which is no action of the allocator's that is known\n"
            "1 rows have frames of the forward pass, which a trace does not keep");
}

TEST(TorchPickle, MakesWhatLivedBeforeTheFirstRowFirst) {
  const auto log = read(snapshot(
      R"({"action": "free_requested", "addr": 8192, "size": 300, "stream": 5},
         {"action": "free_completed", "addr": 8192, "size": 300, "stream": 5},
         {"action": "alloc", "addr": 8192, "size": 200, "stream": 5},
         {"action": "free_completed", "addr": 12288, "size": 1, "stream": 5},
         {"action": "segment_free", "addr": 1048576, "size": 4096, "stream": 0})",
      R"({"device": 0, "address": 4096, "total_size": 65536, "stream": 5, "blocks": [
            {"size": 4096, "requested_size": 4000, "state": "active_allocated"},
            {"size": 512, "requested_size": 200, "state": "active_allocated"},
            {"size": 1024, "history": [{"addr": 8704, "real_size": 1000}], "state": "active_allocated"},
            {"size": 1024, "state": "active_pending_free"},
            {"size": 2048, "state": "inactive"}]})"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=65536 addr=0x1000 preexisting stream=0x5\n"
            "memalloc backing id=s2 size=4096 addr=0x100000 preexisting\n"
            "memalloc id=1 size=1024 addr=0x2600 granted=1024 preexisting stream=0x5\n"
            "free id=1 stream=0x5 \"x-no_row\":true\n"
            "memalloc id=2 size=1 addr=0x3000 preexisting stream=0x5\n"
            "free id=2 stream=0x5 \"x-no_row\":true\n"
            "memalloc id=3 size=4000 addr=0x1000 granted=4096 preexisting stream=0x5\n"
            "memalloc id=4 size=300 addr=0x2000 preexisting stream=0x5\n"
            "memalloc id=5 size=1000 addr=0x2200 granted=1024 preexisting stream=0x5\n"
            "free id=4 stream=0x5\n"
            "memalloc id=6 size=200 addr=0x2000 granted=512 stream=0x5\n"
            "free backing id=2 stream=0x5\n"
            "free backing id=s2\n"
            "free backing id=1 error\n"
            "end events=14 live=3 live_bytes=5200");
  EXPECT_EQ(summary(log.counts), "rows 5: used 5");
  EXPECT_FALSE(log.header.complete);
}

TEST(TorchPickle, UndoesMapsAndUnmapsToFindWhatWasMappedBefore) {
  const auto log = read(snapshot(
      R"({"action": "segment_map", "addr": 2000, "size": 1000, "stream": 0},
         {"action": "segment_unmap", "addr": 500, "size": 250, "stream": 0})",
      R"({"device": 0, "address": 0, "total_size": 500, "stream": 0, "is_expandable": true, "blocks": []},
         {"device": 0, "address": 1000, "total_size": 3000, "stream": 0, "is_expandable": true, "blocks": []})"));

  EXPECT_EQ(log.text(),
            "memalloc backing physical id=s1 size=500 addr=0x0 preexisting\n"
            "memalloc backing physical id=s2 size=250 addr=0x1f4 preexisting\n"
            "memalloc backing physical id=s3 size=1000 addr=0x3e8 preexisting\n"
            "memalloc backing physical id=s4 size=1000 addr=0xbb8 preexisting\n"
            "memalloc backing physical id=s5 size=1000 addr=0x7d0\n"
            "free backing id=s2\n"
            "end events=6 live=0 live_bytes=0");
  EXPECT_EQ(
      notes(log),
      "4 segments, 2.69 KiB in all, were there before the first row: the recording began later, "
      "or its ring lost the "
      "oldest rows");
}

TEST(TorchPickle, SaysWhereRecordStreamHeldMemoryBack) {
  const auto log = read(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0},
         {"action": "free_requested", "addr": 4096, "size": 100, "stream": 0},
         {"action": "alloc", "addr": 8192, "size": 100, "stream": 0},
         {"action": "free_completed", "addr": 4096, "size": 100, "stream": 0},
         {"action": "free_completed", "addr": 8192, "size": 100, "stream": 0})"));

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=100 addr=0x1000\n"
            "free id=1\n"
            "memalloc id=2 size=100 addr=0x2000\n"
            "free backing id=1\n"
            "free id=2\n"
            "end events=5 live=0 live_bytes=0");
  EXPECT_EQ(notes(log),
            "1 frees completed later than they were asked for, as record_stream makes them");
}

TEST(TorchPickle, SaysWhichFreesDidNotComplete) {
  const auto log = read(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "time_us": 10},
         {"action": "alloc", "addr": 8192, "size": 200, "stream": 0, "time_us": 11},
         {"action": "alloc", "addr": 12288, "size": 300, "stream": 0, "time_us": 12},
         {"action": "free_requested", "addr": 12288, "size": 300, "stream": 0, "time_us": 13},
         {"action": "free_requested", "addr": 8192, "size": 200, "stream": 0, "time_us": 14},
         {"action": "alloc", "addr": 8192, "size": 50, "stream": 0, "time_us": 15},
         {"action": "free_requested", "addr": 4096, "size": 100, "stream": 0, "time_us": 16})",
      R"({"device": 0, "address": 4096, "total_size": 65536, "stream": 0, "blocks": [
            {"address": 4096, "size": 512, "requested_size": 100, "state": "active_pending_free"},
            {"address": 8192, "size": 512, "requested_size": 50, "state": "active_allocated"},
            {"address": 12288, "size": 512, "requested_size": 300, "state": "active_pending_free"}]})"));

  EXPECT_EQ(log.text().substr(log.text().find("free id=3")),
            "free id=3 time_ns=3000\n"
            "free id=2 time_ns=4000\n"
            "memalloc id=4 size=50 addr=0x2000 granted=512 time_ns=5000\n"
            "free id=1 time_ns=6000\n"
            "free backing id=1 time_ns=6000 error\n"
            "free backing id=3 time_ns=6000 error\n"
            "end events=10 live=1 live_bytes=50")
      << "what lives where a free was asked for says that it completed";
  EXPECT_EQ(log.counts.notes.back(),
            "2 frees had not completed at the end: their memory was not free yet");
}

TEST(TorchPickle, TellsWhatIsLeftOfAnUnmappedRangeFromWhatWasMapped) {
  const auto log = read(snapshot(
      R"({"action": "segment_map", "addr": 1000, "size": 100, "stream": 0},
         {"action": "segment_map", "addr": 1100, "size": 100, "stream": 0},
         {"action": "segment_unmap", "addr": 1050, "size": 100, "stream": 0})"));

  EXPECT_EQ(log.text(),
            "memalloc backing physical id=s1 size=100 addr=0x3e8\n"
            "memalloc backing physical id=s2 size=100 addr=0x44c\n"
            "free backing id=s1\n"
            "memalloc backing physical id=s3 size=50 addr=0x3e8 \"x-no_row\":true\n"
            "free backing id=s2 \"x-no_row\":true\n"
            "memalloc backing physical id=s4 size=50 addr=0x47e \"x-no_row\":true\n"
            "end events=6 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 3: used 3");
}

TEST(TorchPickle, TakesCompletionsForTheFreesWhereNoOthersWereRecorded) {
  const auto log =
      read(snapshot(R"({"action": "free_completed", "addr": 4096, "size": 100, "stream": 0})"));

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=100 addr=0x1000 preexisting\n"
            "free id=1\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(TorchPickle, TakesARowThatSaysNoStreamAndNoTime) {
  const auto log = read(snapshot(R"({"action": "alloc", "addr": 4096, "size": 100},
                                    {"action": "free_completed", "addr": 4096, "size": 100})"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=100 addr=0x1000\n"
            "free id=1\n"
            "end events=2 live=0 live_bytes=0");
}

TEST(TorchPickle, TakesTuplesAsLists) {
  // {"device_traces": (({"action": "alloc", "addr": 7, "size": 9, "stream": None, "time_us":
  // None},),)}
  std::string bytes =
      "\x80\x04}\x8c\x0d"
      "device_traces}(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04"
      "addrK\x07\x8c\x04"
      "sizeK\x09"
      "\x8c\x06"
      "streamN\x8c\x07"
      "time_usNu\x85\x85s.";

  const auto log = import_text("torch-pickle", bytes);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=9 addr=0x7\n"
            "end events=1 live=1 live_bytes=9");
}

TEST(TorchPickle, OrdersTheRowsOfSeveralDevicesByTime) {
  const auto log = read(
      R"({"segments": [{"device": 3, "address": 4096, "total_size": 512, "stream": 0, "blocks": []}],
          "device_traces": [[{"action": "alloc", "addr": 1, "size": 10, "stream": 0, "time_us": 10},
                             {"action": "alloc", "addr": 2, "size": 20, "stream": 0, "time_us": 30}],
                            [],
                            [{"action": "alloc", "addr": 1, "size": 30, "stream": 0, "time_us": 20},
                             {"action": "free_requested", "addr": 1, "size": 30, "stream": 0, "time_us": 40}]],
          "external_annotations": [{"stage": "START", "name": "step", "device": 2, "time_us": 15}]})");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=512 addr=0x1000 preexisting device=3\n"
            "memalloc id=1 size=10 addr=0x1 device=0 time_ns=0\n"
            "mark device=2 time_ns=5000 step begin\n"
            "memalloc id=2 size=30 addr=0x1 device=2 time_ns=10000\n"
            "memalloc id=3 size=20 addr=0x2 device=0 time_ns=20000\n"
            "free id=2 device=2 time_ns=30000\n"
            "end events=6 live=2 live_bytes=30");
  EXPECT_EQ(log.header.devices.size(), 3u);
  EXPECT_EQ(log.header.requires_, (std::vector<std::string>{"streams", "multi-device"}));
}

TEST(TorchPickle, DefinesAStackOnceHoweverItIsWritten) {
  constexpr std::string_view kFrames =
      R"([{"name": "f", "filename": "a.py", "line": 1}, {"line": 2, "name": "g", "filename": "b.py"}])";
  std::string rows;
  for (auto i = 1; i <= 3; ++i) {
    rows += i > 1 ? ", " : "";
    rows += text::format(
        "{\"action\": \"alloc\", \"addr\": {}, \"size\": 8, \"stream\": 0, \"frames\": {}", i,
        kFrames);
    rows += "}";
  }
  const auto log = read(snapshot(rows));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(std::count_if(log.operations.begin(), log.operations.end(),
                          [](const auto& line) { return line.starts_with("define"); }),
            1);
  EXPECT_EQ(log.operations[0], "define site id=1 [a.py:1 f, b.py:2 g]");
}

TEST(TorchPickle, TakesTheSegmentsOfMemorySnapshot) {
  constexpr std::string_view kSegments =
      R"([{"device": 0, "address": 4096, "total_size": 2097152, "stream": 0, "segment_type": "small",
           "segment_pool_id": [0, 1], "is_expandable": true,
           "blocks": [{"address": 4096, "size": 512, "requested_size": 100,
                       "state": "active_allocated", "frames": []},
                      {"address": 4608, "size": 2096640, "requested_size": 0,
                       "state": "inactive"}]}])";
  const auto log = read(kSegments);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing physical id=s1 size=2097152 addr=0x1000 preexisting "
            "\"x-segment_type\":\"small\",\"x-pool_id\":[0,1]\n"
            "memalloc id=1 size=100 addr=0x1000 granted=512 preexisting\n"
            "end events=2 live=1 live_bytes=100");
  const auto as_json = import_text("torch-pickle", std::string(kSegments));
  EXPECT_EQ(as_json.error, "");
  EXPECT_EQ(as_json.text(), log.text());
}

TEST(TorchPickle, FindsTheSnapshotInsideOfWhatAProgramPickled) {
  const auto alone = snapshot(R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0})");
  const std::pair<std::string, std::string_view> kAround[] = {
      {"{\"snapshot\": " + alone + ", \"step\": 5}", "['snapshot']"},
      {"[7, {\"a\": [" + alone + "]}]", "[1]['a'][0]"},
  };
  for (const auto& [json, place] : kAround) {
    const auto log = read(json);
    EXPECT_EQ(log.error, "");
    EXPECT_EQ(log.text(), read(alone).text());
    EXPECT_EQ(notes(log), text::format("the snapshot lies at {} of what the file holds\n{}", place,
                                       notes(read(alone))));
    EXPECT_EQ(import_text("torch-pickle", json).text(), log.text()) << "as JSON";
  }
  EXPECT_EQ(read("{\"rank0\": " + alone + ", \"rank1\": " + alone + "}").error,
            "run.log: the file holds 2 snapshots, at ['rank0'], ['rank1']: expected one: where "
            "`held` is what the file holds, write each by `pickle.dump(held['rank0'], "
            "open(\"0.pickle\", \"wb\"))`");
}

TEST(TorchPickle, KnowsProtocols0And1) {
  constexpr std::string_view kSegment =
      "(lp0\n(dp1\nVdevice\np2\nI0\nsVaddress\np3\nI4096\nsVtotal_size\np4\nI2097152\n"
      "sVsegment_type\np5\nVsmall\np6\nsVblocks\np7\n(lp8\n(dp9\nVsize\np10\nI512\nsVstate\np11\n"
      "Vactive_allocated\np12\nsasa.";
  const auto source = format::ByteSource::memory(kSegment);
  const auto importer = detect(*source);
  ASSERT_TRUE(importer);
  EXPECT_EQ((*importer)->name, "torch-pickle");

  const auto log = import_text("torch-pickle", std::string(kSegment));
  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=2097152 addr=0x1000 preexisting\n"
            "memalloc id=1 size=512 addr=0x1000 granted=512 preexisting\n"
            "end events=2 live=1 live_bytes=512");
}

TEST(TorchPickle, TakesSnapshotsAsJson) {
  const auto json = snapshot(R"({"action": "alloc", "addr": 4096, "size": 100, "stream": -1,
                                 "time_us": 1.5e3, "frames": null})");
  const auto log = import_text("torch-pickle", json);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(), read(json).text());
  EXPECT_EQ(import_text("torch-pickle", json.substr(0, json.size() - 3)).error.substr(0, 8),
            "run.log:");
}

TEST(TorchPickle, WhatWasThereBeforeTheRowsExistsAtOneMoment) {
  Trace trace;
  const auto bytes = pickled(snapshot(
      R"({"action": "alloc", "addr": 8192, "size": 100, "stream": 0},
         {"action": "alloc", "addr": 16384, "size": 100, "stream": 0})",
      R"({"device": 0, "address": 4096, "total_size": 2097152, "stream": 0,
          "blocks": [{"size": 4096, "requested_size": 4000, "state": "active_pending_free"},
                     {"size": 512, "requested_size": 100, "state": "active_allocated"}]})"));
  auto source = format::ByteSource::memory(bytes);
  const auto importer = find_importer("torch-pickle");
  ASSERT_TRUE(importer && (*importer)->read(*source, trace, {}));

  // The segment, the memory whose free was asked for, and that free.
  EXPECT_EQ(trace.beginning(), 3u);
  EXPECT_EQ(trace.first_moment(), 2u);
  EXPECT_TRUE(trace[2].has(event_flag::preexisting));
  EXPECT_FALSE(trace.is_state());
}

TEST(TorchPickle, SaysWhatItCannotRead) {
  constexpr std::string_view kNoSnapshot =
      "run.log: this is no snapshot of PyTorch's memory: expected a dict with \"segments\" and "
      "\"device_traces\", or the list of segments that torch.cuda.memory_snapshot() returns";
  EXPECT_EQ(read(R"([{"device": 0}])").error, kNoSnapshot);
  EXPECT_EQ(read(R"([])").error, kNoSnapshot);
  EXPECT_EQ(read(R"({"weights": 5})").error, kNoSnapshot);
  EXPECT_EQ(read(R"({"device_traces": 5})").error, kNoSnapshot);
  EXPECT_EQ(read(snapshot("5")).error,
            "run.log: device_traces[0][0]: the row is not as it should be: expected a dict");
  EXPECT_EQ(read(snapshot(R"({"addr": 4096})")).error,
            "run.log: device_traces[0][0]: \"action\" is not as it should be: expected a string");
  EXPECT_EQ(read(snapshot(R"({"action": "alloc", "size": 5, "stream": 0})")).error,
            "run.log: device_traces[0][0]: \"addr\" is not as it should be: expected an address");
  EXPECT_EQ(
      read(snapshot(R"({"action": "alloc", "addr": 1, "size": -5, "stream": 0})")).error,
      "run.log: device_traces[0][0]: \"size\" is not as it should be: expected a count of bytes");
  EXPECT_EQ(read(snapshot(R"({"action": "alloc", "addr": 1, "size": 5, "stream": "0"})")).error,
            "run.log: device_traces[0][0]: \"stream\" is not as it should be: expected a stream's "
            "handle");
  EXPECT_EQ(
      read(snapshot(R"({"action": "alloc", "addr": 1, "size": 5, "stream": 0, "time_us": "now"})"))
          .error,
      "run.log: device_traces[0][0]: \"time_us\" is not as it should be: expected microseconds");
  EXPECT_EQ(read(snapshot("", R"({"device": 0, "address": 1})")).error,
            "run.log: segments[0] has no number \"total_size\": expected bytes or an address");
  EXPECT_EQ(read(snapshot("", R"({"device": 4000, "address": 1, "total_size": 5})")).error,
            "run.log: device 4000: expected a snapshot of fewer devices");
  EXPECT_EQ(import_text("torch-pickle",
                        "\x80\x04"
                        "cos\nsystem\n(S'true'\ntR.")
                .error,
            "run.log: byte 2: GLOBAL asks to run code: expected plain data: dicts, lists, tuples, "
            "strings and numbers");
}

TEST(TorchPickle, TakesWhatIsThereOfAFileThatWasCut) {
  const auto whole = pickled(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0}, {"action": "alloc", "addr": 8192, "size": 7, "stream": 0})"));
  auto lost = 0, most = 0;
  for (std::size_t size = 3; size < whole.size(); ++size) {
    const auto prefix = std::string_view(whole).substr(0, size);
    EXPECT_EQ(
        import_text("torch-pickle", prefix).error,
        text::format("run.log: byte {}: the file ends inside the pickle: expected STOP", size));
    const auto log = import_text("torch-pickle", prefix, true);
    if (log.error.empty()) {
      EXPECT_EQ(log.counts.truncated, 1u) << size;
      most = std::max(most, static_cast<int>(log.counts.used));
    } else {
      ++lost;
    }
  }
  EXPECT_EQ(most, 1) << "the last row may be half there";
  EXPECT_LE(lost, 3);
}

TEST(TorchPickle, TakesRowsAloneWhereTheirTailWasCutOff) {
  const auto whole = pickled(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "time_us": 1},
         {"action": "free_requested", "addr": 65536, "size": 7, "stream": 0, "time_us": 2},
         {"action": "free_completed", "addr": 65536, "size": 7, "stream": 0, "time_us": 3},
         {"action": "free_requested", "addr": 4096, "size": 100, "stream": 0, "time_us": 4},
         {"action": "free_completed", "addr": 4096, "size": 100, "stream": 0, "time_us": 5},
         {"action": "alloc", "addr": 4096, "size": 4000, "stream": 0, "time_us": 6})",
      R"({"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "blocks": [
            {"address": 4096, "size": 4096, "requested_size": 4000, "state": "active_allocated"},
            {"address": 8192, "size": 4096, "requested_size": 4096, "state": "active_allocated"}]})"));
  std::size_t in_rows = 0;
  for (std::size_t size = whole.size() - 1; size > 3; --size) {
    const auto log = import_text("torch-pickle", std::string_view(whole).substr(0, size), true);
    if (!log.error.empty() || notes(log).find("inside the rows of device 0") == std::string::npos)
      continue;
    ++in_rows;
    EXPECT_EQ(log.text().find("granted"), std::string::npos)
        << "nothing of the state at the end is in\n"
        << log.text();
    EXPECT_EQ(log.text().find("size=4000"), std::string::npos) << "the last row may be half there\n"
                                                               << log.text();
  }
  EXPECT_GT(in_rows, 100u);
}

TEST(TorchPickle, TakesTheStateAloneWhereTheFileEndsBeforeTheRows) {
  const auto whole = pickled(
      snapshot(R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "time_us": 1})",
               R"({"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "blocks": [
            {"address": 4096, "size": 4096, "requested_size": 4000, "state": "active_allocated"},
            {"address": 8192, "size": 4096, "requested_size": 4096, "state": "active_allocated"}]})"));
  const auto log = import_text(
      "torch-pickle", std::string_view(whole).substr(0, whole.find("device_traces") - 4), true);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc backing id=s1 size=8192 addr=0x1000 preexisting\n"
            "memalloc id=1 size=4000 addr=0x1000 granted=4096 preexisting");
  EXPECT_NE(notes(log).find("inside the state at the end: the segments up to there are taken, and "
                            "not the last block"),
            std::string::npos)
      << notes(log);
}

TEST(TorchPickle, LeavesOutWhatOtherDevicesDidBehindACut) {
  auto whole = pickled(
      R"({"device_traces": [[{"action": "alloc", "addr": 1, "size": 10, "stream": 0, "time_us": 10},
                             {"action": "alloc", "addr": 2, "size": 20, "stream": 0, "time_us": 30}],
                            [{"action": "alloc", "addr": 3, "size": 30, "stream": 0, "time_us": 20},
                             {"action": "alloc", "addr": 4, "size": 40, "stream": 0, "time_us": 25},
                             {"action": "alloc", "addr": 5, "size": 50, "stream": 0, "time_us": 40}]]})");
  whole.resize(whole.size() - 8);
  const auto log = import_text("torch-pickle", whole, true);

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x1 device=0 time_ns=0\n"
            "memalloc id=2 size=30 addr=0x3 device=1 time_ns=10000\n"
            "memalloc id=3 size=40 addr=0x4 device=1 time_ns=15000");
  EXPECT_NE(
      notes(log).find("1 rows of other devices are later than the last of device 1: not taken"),
      std::string::npos)
      << notes(log);
}

TEST(TorchPickle, KnowsWherePrivatePoolsAndStacksOfTheStateBelong) {
  const auto log = read(snapshot(
      R"({"action": "segment_map", "addr": 1000, "size": 100, "stream": 0},
         {"action": "segment_map", "addr": 5000, "size": 100, "stream": 0},
         {"action": "segment_unmap", "addr": 1000, "size": 50, "stream": 0})",
      R"({"device": 0, "address": 1050, "total_size": 50, "stream": 0, "is_expandable": true, "segment_pool_id": [0, 2],
          "blocks": [{"address": 1050, "size": 50, "requested_size": 40, "state": "active_allocated",
                      "frames": [{"name": "f", "filename": "a.py", "line": 1}]}]},
         {"device": 0, "address": 5000, "total_size": 100, "stream": 0, "is_expandable": true, "segment_pool_id": [0, 0],
          "blocks": []})"));

  EXPECT_EQ(
      log.text(),
      "define site id=1 [a.py:1 f]\n"
      "memalloc id=1 size=40 addr=0x41a granted=50 preexisting site=1\n"
      "memalloc backing physical id=s1 size=100 addr=0x3e8 \"x-pool_id\":[0,2]\n"
      "memalloc backing physical id=s2 size=100 addr=0x1388\n"
      "free backing id=s1\n"
      "memalloc backing physical id=s3 size=50 addr=0x41a \"x-pool_id\":[0,2],\"x-no_row\":true\n"
      "end events=6 live=1 live_bytes=40");
}

TEST(TorchPickle, SaysWhereRowsAndSegmentsDoNotAgree) {
  const auto log = read(snapshot(
      R"({"action": "alloc", "addr": 4096, "size": 100, "stream": 0},
         {"action": "free_requested", "addr": 4096, "size": 100, "stream": 0},
         {"action": "segment_alloc", "addr": 65536, "size": 512, "stream": 0})",
      R"({"device": 0, "address": 4096, "total_size": 512, "stream": 0, "blocks": [
            {"address": 4096, "size": 512, "requested_size": 100, "state": "active_allocated"}]})"));

  EXPECT_EQ(notes(log),
            "1 segment of 512 B was there before the first row: the recording began later, "
            "or its ring lost the "
            "oldest rows\n"
            "1 blocks are active at the end though the rows free them\n"
            "live allocations: 0 by the rows, 1 by the segments at the end\n"
            "live bytes: 0 by the rows, 100 by the segments at the end\n"
            "reserved bytes: 1024 by the rows, 512 by the segments at the end");
}

TEST(TorchPickle, ReadsBackWhatTheWriterOfSnapshotsWrote) {
  std::string bytes;
  const auto sink = format::ByteSink::to_string(bytes);
  TorchPickleWriter writer(*sink, {.stacks = 10, .depth = 3, .frames = 7, .seed = 5});
  GenerateOptions options;
  options.kind = "multi-stream";
  options.events = 5000;
  ASSERT_TRUE(generate(options, writer));

  const auto log = import_text("torch-pickle", bytes);

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.counts.rows, writer.rows());
  EXPECT_EQ(log.counts.used, writer.rows());
  EXPECT_EQ(notes(log), "");
  EXPECT_EQ(log.operations.back().substr(log.operations.back().find(" live")),
            " live=0 live_bytes=0");
}

/// Adds up what a trace says.
struct Totals final : OperationSink {
  std::map<std::uint64_t, std::uint64_t> live;
  std::map<std::string, std::uint64_t, std::less<>> held;
  std::uint64_t live_bytes = 0, peak_live = 0, reserved = 0, peak_reserved = 0, rounded = 0,
                peak_rounded = 0;
  std::uint64_t segments = 0, refused = 0;
  Header header;

  static std::uint64_t round(std::uint64_t size) {
    return (std::max<std::uint64_t>(size, 512) + 511) / 512 * 512;
  }
  Status on_header(const Header& given) override {
    header = given;
    return {};
  }
  Status on_operation(const Operation& op) override {
    const auto backing = op.layer == Layer::backing;
    if (op.op == Op::memalloc && backing) {
      held.emplace(op.id.text, op.size);
      reserved += op.size;
      peak_reserved = std::max(peak_reserved, reserved);
      ++segments;
    } else if (op.op == Op::memalloc && op.result.outcome == Outcome::oom) {
      ++refused;
    } else if (op.op == Op::memalloc) {
      live.emplace(op.id.number, op.size);
      live_bytes += op.size;
      rounded += round(op.size);
      peak_live = std::max(peak_live, live_bytes);
      peak_rounded = std::max(peak_rounded, rounded);
    } else if (op.op == Op::free && backing && !op.id.is_number()) {
      const auto found = held.find(op.id.text);
      reserved -= found->second;
      held.erase(found);
    } else if (op.op == Op::free && !backing) {
      const auto found = live.find(op.id.number);
      live_bytes -= found->second;
      rounded -= round(found->second);
      live.erase(found);
    }
    return {};
  }
};

constexpr const char* kFolder = EMM_EXTRA_TRACES;

struct Recorded {
  Totals totals;
  ImportCounts counts;
  std::uint64_t trace_events = 0;
};

Result<Recorded> read_recorded(std::string_view name) {
  const auto path = text::format("{}/torch/{}", kFolder, name);
  Recorded recorded;
  auto source = format::ByteSource::open(path);
  if (!source) return source.error();
  auto importer = detect(**source);
  if (!importer) return importer.error();
  EXPECT_EQ((*importer)->name, "torch-pickle");
  auto counts = (*importer)->read(**source, recorded.totals, {});
  if (!counts) return counts.error();
  recorded.counts = *counts;
  auto again = format::ByteSource::open(path);
  Trace trace;
  auto judged = (*importer)->read(**again, trace, {});
  if (!judged) return judged.error();
  recorded.trace_events = trace.size();
  return recorded;
}

TEST(TorchPickle, AgreesWithWhatATrainingRunWithStacksRecorded) {
  if (std::string_view(kFolder).empty())
    GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the folder of the recordings";

  const auto recorded = read_recorded("torch_mlp_stacks.pickle.gz");

  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto& totals = recorded->totals;
  EXPECT_EQ(summary(recorded->counts), "rows 1125: used 1125");
  EXPECT_EQ(text::join(recorded->counts.notes), "");
  EXPECT_EQ(totals.peak_live, 183'050'408u);
  EXPECT_EQ(totals.peak_reserved, 216'006'656u);
  EXPECT_EQ(totals.segments, 13u);
  EXPECT_EQ(totals.live.size(), 23u);
  const auto said = format::parse_json(totals.header.source_options);
  const auto& end = *said->find("at_end");
  EXPECT_EQ(end.find("segments")->as_u64(), totals.held.size());
  EXPECT_EQ(end.find("reserved_bytes")->as_u64(), totals.reserved);
  EXPECT_EQ(end.find("requested_bytes")->as_u64(), totals.live_bytes);
  EXPECT_EQ(totals.peak_reserved, totals.reserved) << "nothing was released";
  EXPECT_EQ(end.find("allocated_bytes")->as_u64(), totals.rounded)
      << "rounded to 512 bytes, with no unsplit remainder";
  EXPECT_GT(recorded->trace_events, 700u);
}

TEST(TorchPickle, AgreesWithWhatARunThatRanOutOfMemoryRecorded) {
  if (std::string_view(kFolder).empty())
    GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the folder of the recordings";

  const auto recorded = read_recorded("torch_oom.pickle.gz");

  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto& totals = recorded->totals;
  EXPECT_EQ(summary(recorded->counts), "rows 88: used 88");
  EXPECT_EQ(totals.refused, 2u);
  EXPECT_EQ(totals.peak_live, 2'956'204'978u);
  EXPECT_EQ(totals.peak_reserved, 2'988'441'600u);
  EXPECT_EQ(totals.segments, 26u);
  EXPECT_EQ(totals.held.size(), 20u);
  EXPECT_EQ(totals.live.size(), 21u);
  const auto said = format::parse_json(totals.header.source_options);
  const auto& end = *said->find("at_end");
  EXPECT_EQ(end.find("reserved_bytes")->as_u64(), totals.reserved);
  EXPECT_EQ(end.find("requested_bytes")->as_u64(), totals.live_bytes);
  const auto allocated = *end.find("allocated_bytes")->as_u64();
  EXPECT_GE(allocated, totals.rounded);
  EXPECT_LE(allocated - totals.rounded, totals.live.size() << 20)
      << "a block keeps a rest of up to 1 MiB unsplit";
  ASSERT_EQ(recorded->counts.notes.size(), 1u);
  EXPECT_EQ(recorded->counts.notes[0],
            "2 allocations failed with room on the device, 136.50 GiB or more: a limit was "
            "set elsewhere, as by "
            "a memory fraction");
}

TEST(TorchPickle, TakesASnapshotWithoutRowsForWhatLivedAtItsEnd) {
  const auto log = read(
      R"({"segments": [{"device": 0, "address": 4096, "total_size": 2097152, "stream": 0, "blocks": [
      {"address": 4096, "size": 512, "requested_size": 300, "state": "active_allocated"}]}]})");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(summary(log.counts), "rows 0:");
  EXPECT_NE(log.text().find("size=300"), std::string::npos) << log.text();
}

TEST(TorchPickle, SaysThatTheEndIsNotKnownWithoutSegments) {
  const auto log = read(
      R"({"device_traces": [[{"action": "alloc", "addr": 4096, "size": 100, "stream": 0, "time_us": 5.5}]]})");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(summary(log.counts), "rows 1: used 1");
  EXPECT_EQ(notes(log), "the snapshot has no \"segments\": the state at its end is not known");
}

}  // namespace
}  // namespace emm::trace
