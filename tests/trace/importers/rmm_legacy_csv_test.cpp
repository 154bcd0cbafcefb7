#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

const std::string kHeader =
    "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current "
    "Allocs,Start,End,Elapsed,"
    "Location\n";

TEST(RmmLegacyCsv, MakesOperationsWithSitesDevicesAndTimes) {
  const auto log = import_text(
      "rmm-legacy-csv",
      kHeader +
          "Alloc,0,0x7f4b99a00000,0,10,1048064,1048576,1,13.8011,13.8011,3.711e-06,/a.py:3331\n"
          "Alloc,1,0x7f4b99b00000,0x5590,20,1048064,1048576,2,14,14,1e-06,/a.py:3331\n"
          "Free,0,0x7f4b99a00000,0,0,1048576,1048576,1,15.5,15.5,2e-06,/b.py:7\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(
      log.text(),
      "define site id=1 [/a.py:3331] @2\n"
      "memalloc id=1 size=10 addr=0x7f4b99a00000 time_ns=13801100000 duration_ns=3711 site=1 @2\n"
      "memalloc id=2 size=20 addr=0x7f4b99b00000 stream=0x5590 device=1 time_ns=14000000000 "
      "duration_ns=1000 "
      "site=1 @3\n"
      "define site id=2 [/b.py:7] @4\n"
      "free id=1 time_ns=15500000000 duration_ns=2000 site=2 @4\n"
      "end events=5 live=1 live_bytes=20");
  EXPECT_EQ(summary(log.counts), "rows 3: used 3");
  ASSERT_EQ(log.header.devices.size(), 1u);
  EXPECT_EQ(log.header.devices[0].capacity, 1048576u);
}

TEST(RmmLegacyCsv, MakesReallocAFreeAndAMemalloc) {
  const auto log = import_text("rmm-legacy-csv", kHeader +
                                                     "Alloc,0,0x100,0,10,0,0,1,1,1,0,\n"
                                                     "Realloc,0,0x100,0,20,0,0,1,2,2,0,\n"
                                                     "Realloc,0,0x200,0,30,0,0,1,3,3,0,\n");

  EXPECT_EQ(log.text(),
            "memalloc id=1 size=10 addr=0x100 time_ns=1000000000 duration_ns=0 @2\n"
            "free id=1 time_ns=2000000000 duration_ns=0 @3\n"
            "memalloc id=2 size=20 addr=0x100 time_ns=2000000000 duration_ns=0 @3\n"
            "memalloc id=3 size=30 addr=0x200 time_ns=3000000000 duration_ns=0 @4\n"
            "end events=4 live=2 live_bytes=50");
  EXPECT_EQ(summary(log.counts), "rows 3: used 3");
  EXPECT_EQ(text::join(log.counts.notes),
            "1 rows are a Realloc that moved: the log does not say what ended there");
  EXPECT_TRUE(log.header.devices.empty()) << "a manager that does not ask the device logs 0";
}

TEST(RmmLegacyCsv, CountsWhatItCannotUse) {
  const auto log = import_text("rmm-legacy-csv", kHeader +
                                                     "Free,0,0x900,0,0,0,0,0,1,1,0,a:1\n"
                                                     "Alloc,0,0x100,0,10,0,0,1,1,1,0,\n"
                                                     "Alloc,0,0x100,0,10,0,0,1,1,1,0,\n"
                                                     "Free,0,0,0,0,0,0,1,1,1,0,\n"
                                                     "Alloc,0,0,0,99,0,0,1,1,1,0,\n");

  EXPECT_EQ(summary(log.counts), "rows 5: used 2, unmatched 1, duplicate 1, other 1");
  EXPECT_NE(log.text().find("memalloc id=2 size=99 time_ns=1000000000 duration_ns=0 error @6"),
            std::string::npos)
      << log.text();
}

TEST(RmmLegacyCsv, SaysWhereARowIsDamaged) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"Allocate,0,0x1,0,1,0,0,1,1,1,0,\n",
       R"(run.log:2:1: Event Type is "Allocate": expected Alloc, Realloc or Free)"},
      {"Alloc,gpu,0x1,0,1,0,0,1,1,1,0,\n",
       R"(run.log:2:7: Device ID is "gpu": expected a device's number)"},
      {"Alloc,0,0x1,0,1,0,0,1,nan,1,0,\n", R"(run.log:2:23: Start is "nan": expected seconds)"},
      {"Alloc,0,0x1,0,1,0,0,many,1,1,0,\n",
       R"(run.log:2:21: Current Allocs is "many": expected a count)"},
  };

  for (const auto& [row, words] : rows) {
    EXPECT_EQ(import_text("rmm-legacy-csv", kHeader + std::string(row)).error, words) << row;
  }
}

TEST(RmmLegacyCsv, RefusesADeviceThatATraceCannotName) {
  const auto row = [](std::string_view device) {
    return kHeader + text::format("Alloc,{},0x100,0,10,1,1,1,1,1,1,a.py:1\n", device);
  };

  EXPECT_EQ(import_text("rmm-legacy-csv", row("255")).error, "");
  EXPECT_EQ(import_text("rmm-legacy-csv", row("256")).error,
            "run.log:2:7: Device ID is \"256\": expected a device's number");
}

TEST(RmmLegacyCsv, FindsItsColumnsInAnyOrderAmongOthersInQuotesOrNot) {
  const auto log = import_text("rmm-legacy-csv",
                               "Address,Size (bytes),Event Type,Location,run\n"
                               "0x100,10,Alloc,\"a \"\"b\"\", c.py:7\",1\n"
                               "0x100,10,Free,,1\n");

  EXPECT_EQ(log.error, "");
  EXPECT_EQ(summary(log.counts), "rows 2: used 2");
  EXPECT_EQ(text::join(log.counts.notes), "1 columns are not read: run");
  EXPECT_NE(log.text().find("a \"b\", c.py:7"), std::string::npos) << log.text();
}

}  // namespace
}  // namespace emm::trace
