// Logs of RMM, one a device, as one trace.
#include "exchange/importers/rmm_devices.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

struct Logs {
  std::vector<std::string> texts;
  Imported imported;

  void read(bool partial = false) {
    std::vector<std::unique_ptr<format::ByteSource>> sources;
    std::vector<DeviceLog> logs;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      sources.push_back(format::ByteSource::memory(texts[i], text::format("run.dev{}.csv", i)));
      logs.push_back({.source = sources.back().get(), .device = static_cast<std::uint32_t>(i)});
    }
    auto counts = read_rmm_devices(logs, imported, {.partial = partial});
    if (counts) imported.counts = *std::move(counts);
    if (!counts) imported.error = counts.error().message;
  }
};

TEST(RmmDevices, AreInTheOrderOfTheirTimesWithIdsOfTheirOwn) {
  Logs logs{.texts = {std::string(kHeader) + "1,10:00:00.000001,allocate,0x100,16,0\n"
                                             "1,10:00:00.000005,free,0x100,16,0\n",
                      std::string(kHeader) + "1,10:00:00.000000,allocate,0x100,32,0\n"
                                             "1,10:00:00.000003,free,0x900,32,0\n"
                                             "1,10:00:00.000004,allocate,0x200,64,0\n"},
            .imported = {}};

  logs.read();

  EXPECT_EQ(logs.imported.error, "");
  EXPECT_EQ(logs.imported.text(),
            "memalloc id=2 size=32 addr=0x100 thread=1 device=1 time_ns=0\n"
            "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=1000\n"
            "memalloc id=4 size=64 addr=0x200 thread=1 device=1 time_ns=4000\n"
            "free id=1 thread=1 time_ns=5000\n"
            "end events=4 live=2 live_bytes=96");
  EXPECT_EQ(summary(logs.imported.counts), "rows 5: used 4, unmatched 1");
  EXPECT_TRUE(logs.imported.finished);
}

TEST(RmmDevices, MayBeginOnEitherSideOfMidnight) {
  Logs logs{.texts = {std::string(kHeader) + "1,00:00:01.000000,allocate,0x100,16,0\n",
                      std::string(kHeader) + "1,23:59:59.000000,allocate,0x100,32,0\n"},
            .imported = {}};

  logs.read();

  EXPECT_EQ(logs.imported.text(),
            "memalloc id=2 size=32 addr=0x100 thread=1 device=1 time_ns=0\n"
            "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=2000000000\n"
            "end events=2 live=2 live_bytes=48");
}

TEST(RmmDevices, HaveNoEndWhereOneOfThemWasCut) {
  Logs logs{.texts = {std::string(kHeader) + "1,10:00:00.000001,allocate,0x100,16,0\n",
                      std::string(kHeader) + "1,10:00:00.0000"},
            .imported = {}};

  logs.read(true);

  EXPECT_EQ(logs.imported.text(), "memalloc id=1 size=16 addr=0x100 thread=1 time_ns=0");
  EXPECT_EQ(text::join(logs.imported.counts.notes), "run.dev1.csv: the file ends inside line 2");
}

TEST(RmmDevices, AreNamedInTheLogsNames) {
  EXPECT_EQ(device_of_log("/tmp/run.dev1.csv"), 1u);
  EXPECT_EQ(device_of_log("run.dev12"), 12u);
  EXPECT_EQ(device_of_log("run.dev0.csv.gz"), 0u);
  EXPECT_EQ(device_of_log("a.dev1/run.csv"), std::nullopt);
  EXPECT_EQ(device_of_log("run.device.csv"), std::nullopt);
}

}  // namespace
}  // namespace emm::trace
