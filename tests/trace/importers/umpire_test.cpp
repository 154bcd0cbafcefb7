#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/trace.hpp"

namespace emm::trace {
namespace {

/// A row of the dialect of 2022; its members as JSON text.
std::string row(std::string_view name, std::string_view numbers, std::string_view strings,
                std::string_view allocator = "HOST") {
  return text::format(R"({"category":"operation","name":"{}","numeric_args":{)", name) +
         std::string(numbers) + R"(},"string_args":{)" + std::string(strings) +
         R"(},"tags":{"allocator_name":")" + std::string(allocator) + "\"},\"timestamp\":7}\n";
}

std::string resource(std::string_view name, std::string_view ref) {
  return row("make_memory_resource", R"("introspection":1)",
             text::format(R"("allocator_ref":"{}")", ref), name);
}

TEST(UmpireReplay, LabelsAllocationsWithTheirAllocatorAndTellsHostFromDeviceAndManagedMemory) {
  const auto log = import_text(
      "umpire-replay",
      resource("HOST", "0x10") + resource("DEVICE", "0x20") + resource("UM", "0x30") +
          row("make_allocator", "", R"("allocator_ref":"0x40","arg0":"UM","type":"QuickPool")",
              "pool") +
          row("allocate", R"("size":128)", R"("allocator_ref":"0x10","pointer":"0x100")") +
          row("allocate", R"("size":129)", R"("allocator_ref":"0x20","pointer":"0x200")") +
          row("allocate", R"("size":130)", R"("allocator_ref":"0x40","pointer":"0x300")") +
          row("deallocate", "", R"("allocator_ref":"0x10","pointer":"0x100")"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memhostalloc id=1 size=128 addr=0x100 time_ns=0 \"HOST\" @5\n"
            "memalloc id=2 size=129 addr=0x200 time_ns=0 \"DEVICE\" @6\n"
            "memallocmanaged id=3 size=130 addr=0x300 time_ns=0 \"pool\" @7\n"
            "free id=1 time_ns=0 @8\n"
            "end events=4 live=2 live_bytes=259");
  EXPECT_EQ(summary(log.counts), "rows 8: used 4, other 4");
}

TEST(UmpireReplay, TakesAReallocationFromItsResultWhereNoOtherRowsDidIt) {
  const auto log = import_text(
      "umpire-replay",
      row("allocate", R"("size":8)", R"("allocator_ref":"0x10","pointer":"0x100")") +
          row("reallocate", R"("size":36)", R"("allocator_ref":"0x10","current_ptr":"0x100")") +
          row("reallocate", "", R"("allocator_ref":"0x10","new_ptr":"0x200")"));

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=8 addr=0x100 time_ns=0 @1\n"
            "free id=1 time_ns=0 @3\n"
            "memalloc id=2 size=36 addr=0x200 time_ns=0 @3\n"
            "end events=3 live=1 live_bytes=36");
  EXPECT_EQ(summary(log.counts), "rows 3: used 2, duplicate 1");
}

TEST(UmpireReplay, TakesAReallocationFromTheRowsThatDidIt) {
  const auto log = import_text(
      "umpire-replay",
      row("reallocate", R"("size":36)", R"("allocator_ref":"0x10","current_ptr":"0")") +
          row("allocate", R"("size":36)", R"("allocator_ref":"0x10","pointer":"0x200")") +
          row("reallocate", "", R"("allocator_ref":"0x10","new_ptr":"0x200")"));

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=36 addr=0x200 time_ns=0 @2\nend events=1 live=1 live_bytes=36");
  EXPECT_EQ(summary(log.counts), "rows 3: used 1, duplicate 2");
}

TEST(UmpireReplay, CountsAResultThatNothingAnnouncedAsUnmatched) {
  const auto log = import_text(
      "umpire-replay", row("reallocate", "", R"("allocator_ref":"0x10","new_ptr":"0x200")"));

  EXPECT_EQ(summary(log.counts), "rows 1: unmatched 1");
}

TEST(UmpireReplay, OfTheOlderDialectCountsWhatIsAnnouncedAndThenSaidAsDuplicate) {
  const auto log = import_text(
      "umpire-replay",
      "# a comment\n"
      R"({ "kind":"replay", "uid":7, "timestamp":5, "event": "version", "payload": { "major":0, "minor":3, "patch":3 } })"
      "\n"
      R"({ "kind":"replay", "uid":7, "timestamp":6, "event": "makeMemoryResource", "payload": { "name": "DEVICE" }, "result": "0x20" })"
      "\n"
      R"({ "kind":"replay", "uid":7, "timestamp":7, "event": "allocate", "payload": { "allocator_ref": "0x20", "size": 134 } })"
      "\n"
      R"({ "kind":"replay", "uid":7, "timestamp":8, "event": "allocate", "payload": { "allocator_ref": "0x20", "size": 134 }, "result": { "memory_ptr": "0x200" } })"
      "\n"
      R"({ "kind":"replay", "uid":7, "timestamp":9, "event": "copy", "payload": { "src": "0x200" } })"
      "\n"
      R"({ "kind":"replay", "uid":7, "timestamp":10, "event": "deallocate", "payload": { "allocator_ref": "0x20", "memory_ptr": "0x200" } })"
      "\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.header.framework, "Umpire 0.3.3");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=134 addr=0x200 time_ns=3 \"DEVICE\" @5\n"
            "free id=1 time_ns=5 @7\n"
            "end events=2 live=0 live_bytes=0");
  EXPECT_EQ(summary(log.counts), "rows 7: used 2, duplicate 1, other 4");
}

TEST(UmpireReplay, KeepsMemoryOfNoBytesApartFromWhatSharesItsAddress) {
  const auto allocate = [](std::string_view size) {
    return row("allocate", text::format("\"size\":{}", size),
               R"("allocator_ref":"0x10","pointer":"0x100")");
  };
  const auto free = row("deallocate", "", R"("allocator_ref":"0x10","pointer":"0x100")");

  const auto log = import_text("umpire-replay", allocate("0") + allocate("134") + free + free);

  EXPECT_EQ(summary(log.counts), "rows 4: used 2, other 2");
  EXPECT_EQ(text::join(log.counts.notes), "2 rows allocate or free 0 bytes");
}

TEST(UmpireReplay, NamesWhatIsWrongAndWhere) {
  EXPECT_EQ(import_text("umpire-replay",
                        row("allocate", R"("size":-1)", R"("allocator_ref":"0x1","pointer":"0x2")"))
                .error,
            "run.log:1:66: size is \"-1\": expected a count of bytes");
  EXPECT_EQ(import_text("umpire-replay",
                        row("deallocate", "", R"("allocator_ref":"0x1","pointer":"two")"))
                .error,
            "run.log:1:110: pointer is \"two\": expected an address: 0x and hex digits");
}

std::string allocate(std::string_view ref, std::string_view pointer) {
  return row("allocate", R"("size":64)",
             text::format(R"("allocator_ref":"{}","pointer":"{}")", ref, pointer));
}

TEST(UmpireReplay, PutsMemoryOnTheDeviceThatTheNameOfItsResourceSays) {
  const auto log = import_text(
      "umpire-replay",
      resource("DEVICE", "0x20") + resource("DEVICE::1", "0x21") + resource("DEVICE::3", "0x23") +
          resource("DEVICE_CONST::2", "0x32") + resource("DEVICE::COARSE", "0x24") +
          resource("UM::1", "0x41") +
          row("make_allocator", "",
              R"("allocator_ref":"0x60","arg0":"DEVICE::3","type":"QuickPool")", "pool") +
          row("make_allocator", "", R"("allocator_ref":"0x61","arg0":"pool","type":"ThreadSafe")",
              "safe") +
          row("make_allocator", "",
              R"("allocator_ref":"0x62","arg0":"DEVICE::0","type":"QuickPool")", "pool 0") +
          allocate("0x20", "0x100") + allocate("0x21", "0x200") + allocate("0x23", "0x300") +
          allocate("0x32", "0x400") + allocate("0x24", "0x500") + allocate("0x41", "0x600") +
          allocate("0x60", "0x700") + allocate("0x61", "0x800") + allocate("0x62", "0x900") +
          row("deallocate", "", R"("allocator_ref":"0x61","pointer":"0x800")"));

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(log.text(),
            "memalloc id=1 size=64 addr=0x100 time_ns=0 \"DEVICE\" @10\n"
            "memalloc id=2 size=64 addr=0x200 device=1 time_ns=0 \"DEVICE::1\" @11\n"
            "memalloc id=3 size=64 addr=0x300 device=3 time_ns=0 \"DEVICE::3\" @12\n"
            "memalloc id=4 size=64 addr=0x400 device=2 time_ns=0 \"DEVICE_CONST::2\" @13\n"
            "memalloc id=5 size=64 addr=0x500 time_ns=0 \"DEVICE::COARSE\" @14\n"
            "memallocmanaged id=6 size=64 addr=0x600 device=1 time_ns=0 \"UM::1\" @15\n"
            "memalloc id=7 size=64 addr=0x700 device=3 time_ns=0 \"pool\" @16\n"
            "memalloc id=8 size=64 addr=0x800 device=3 time_ns=0 \"safe\" @17\n"
            "memalloc id=9 size=64 addr=0x900 time_ns=0 \"pool 0\" @18\n"
            "free id=8 time_ns=0 @19\n"
            "end events=10 live=8 live_bytes=512");
}

TEST(UmpireReplay, TellsHostMemoryOfAnyGrainFromDeviceMemory) {
  const auto log =
      import_text("umpire-replay", resource("PINNED::FINE", "0x20") + allocate("0x20", "0x100"));

  EXPECT_EQ(log.operations.front(),
            "memhostalloc id=1 size=64 addr=0x100 time_ns=0 \"PINNED::FINE\" @2");
}

TEST(UmpireReplay, PutsWhatIsReallocatedOnAnotherDeviceThereAndFreesItWhereItWas) {
  const auto file =
      resource("DEVICE::1", "0x21") + resource("DEVICE::2", "0x22") + allocate("0x21", "0x100") +
      row("reallocate", R"("size":128)", R"("allocator_ref":"0x22","current_ptr":"0x100")") +
      row("reallocate", "", R"("allocator_ref":"0x22","new_ptr":"0x200")") +
      row("deallocate", "", R"("allocator_ref":"0x22","pointer":"0x200")");
  const auto source = format::ByteSource::memory(file);
  Trace trace;
  ASSERT_TRUE((*find_importer("umpire-replay"))->read(*source, trace, {}));

  std::vector<std::string> made;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    made.push_back(text::format("{} on {}", name(trace[i].op),
                                trace.contexts()[index(trace[i].context)].device));
  }
  EXPECT_EQ(made,
            (std::vector<std::string>{"memalloc on 1", "free on 1", "memalloc on 2", "free on 2"}));
}

TEST(UmpireReplay, RefusesADeviceThatNoTraceCanName) {
  const auto log = import_text("umpire-replay", resource("DEVICE::256", "0x20"));

  EXPECT_NE(log.error.find(":1: a resource is \"DEVICE::256\": expected devices up to 255"),
            std::string::npos)
      << log.error;
}

TEST(UmpireReplay, SaysHowTheEventsInADatabaseBecomeLines) {
  auto database = std::string("SQLite format 3") + '\0' + std::string(84, '\x10') +
                  "CREATE TABLE EVENTS (EVENT           JSON    )" +
                  R"({"category":"metadata","name":"version","timestamp":1})";
  const auto source = format::ByteSource::memory(database, "log.sqlite");
  const auto found = detect(*source);
  ASSERT_TRUE(found);
  EXPECT_NE((*found)->name, "umpire-replay");
  for (const auto* importer : {*found, *find_importer("umpire-replay")}) {
    Trace trace;
    const auto again = format::ByteSource::memory(database, "log.sqlite");
    const auto read = importer->read(*again, trace, {});
    ASSERT_FALSE(read);
    EXPECT_EQ(describe(read.error()),
              "log.sqlite: this is the SQLite database that Umpire writes: expected its events as "
              "lines, as `sqlite3 "
              "log.sqlite 'SELECT event FROM events' > umpire.replay` writes them");
  }
}

TEST(UmpireReplay, OfTheOlderDialectPutsPoolsOnTheDeviceOfTheirResource) {
  const std::string begin = R"({ "kind":"replay", "uid":7, "timestamp":5, "event": )";
  const auto log = import_text(
      "umpire-replay",
      begin + R"("makeMemoryResource", "payload": { "name": "DEVICE::2" }, "result": "0x20" })" +
          "\n" + begin +
          R"("makeAllocator", "payload": { "allocator_name":"p", "args": [ "DEVICE::2" ] }, "result": { "allocator_ref":"0x30" } })" +
          "\n" + begin +
          R"("allocate", "payload": { "allocator_ref": "0x30", "size": 64 }, "result": { "memory_ptr": "0x500" } })" +
          "\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=64 addr=0x500 device=2 time_ns=0 \"p\" @3\nend events=1 live=1 "
            "live_bytes=64");
}

TEST(UmpireReplay, TakesANamedAllocationForOne) {
  const auto log =
      import_text("umpire-replay",
                  row("named_allocate", R"("size":8)",
                      R"("allocator_ref":"0x10","pointer":"0x100","allocation_name":"field")") +
                      row("deallocate", "", R"("allocator_ref":"0x10","pointer":"0x100")"));

  EXPECT_EQ(summary(log.counts), "rows 2: used 2");
}

}  // namespace
}  // namespace emm::trace
