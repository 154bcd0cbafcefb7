#include <gtest/gtest.h>

#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

/// A row of the dialect of 2022; its members as JSON text.
std::string row(std::string_view name, std::string_view numbers, std::string_view strings,
                std::string_view allocator = "HOST") {
  return text::format(R"({"category":"operation","name":"{}","numeric_args":{)", name) + std::string(numbers) +
         R"(},"string_args":{)" + std::string(strings) + R"(},"tags":{"allocator_name":")" + std::string(allocator) +
         "\"},\"timestamp\":7}\n";
}

std::string resource(std::string_view name, std::string_view ref) {
  return row("make_memory_resource", R"("introspection":1)", text::format(R"("allocator_ref":"{}")", ref), name);
}

TEST(UmpireReplay, LabelsAllocationsWithTheirAllocatorAndTellsHostFromDeviceAndManagedMemory) {
  const auto log = import_text(
      "umpire-replay",
      resource("HOST", "0x10") + resource("DEVICE", "0x20") + resource("UM", "0x30") +
          row("make_allocator", "", R"("allocator_ref":"0x40","arg0":"UM","type":"QuickPool")", "pool") +
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
      "umpire-replay", row("allocate", R"("size":8)", R"("allocator_ref":"0x10","pointer":"0x100")") +
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
      "umpire-replay", row("reallocate", R"("size":36)", R"("allocator_ref":"0x10","current_ptr":"0")") +
                           row("allocate", R"("size":36)", R"("allocator_ref":"0x10","pointer":"0x200")") +
                           row("reallocate", "", R"("allocator_ref":"0x10","new_ptr":"0x200")"));

  EXPECT_EQ(log.text(), "memalloc id=1 size=36 addr=0x200 time_ns=0 @2\nend events=1 live=1 live_bytes=36");
  EXPECT_EQ(summary(log.counts), "rows 3: used 1, duplicate 2");
}

TEST(UmpireReplay, CountsAResultThatNothingAnnouncedAsUnmatched) {
  const auto log = import_text("umpire-replay", row("reallocate", "", R"("allocator_ref":"0x10","new_ptr":"0x200")"));

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
    return row("allocate", text::format("\"size\":{}", size), R"("allocator_ref":"0x10","pointer":"0x100")");
  };
  const auto free = row("deallocate", "", R"("allocator_ref":"0x10","pointer":"0x100")");

  const auto log = import_text("umpire-replay", allocate("0") + allocate("134") + free + free);

  EXPECT_EQ(summary(log.counts), "rows 4: used 2, other 2");
  EXPECT_EQ(text::join(log.counts.notes), "2 rows give or take back 0 bytes");
}

TEST(UmpireReplay, NamesWhatIsWrongAndWhere) {
  EXPECT_EQ(import_text("umpire-replay", row("allocate", R"("size":-1)", R"("allocator_ref":"0x1","pointer":"0x2")")).error,
            "run.log:1:66: size is \"-1\": expected a count of bytes");
  EXPECT_EQ(import_text("umpire-replay", row("deallocate", "", R"("allocator_ref":"0x1","pointer":"two")")).error,
            "run.log:1:110: pointer is \"two\": expected an address: 0x and hex digits");
}

}  // namespace
}  // namespace emm::trace
