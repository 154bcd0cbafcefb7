// What is imported, written as a trace and read again says the same.
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "format/byte_sink.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kRmm =
    "Thread,Time,Action,Pointer,Size,Stream\n"
    "1,00:00:00.000000,allocate,0xffffffffffffff00,18446744073709551615,0x1\n"
    "1,00:00:00.000002,allocate failure,(nil),9007199254740993,0x55aabbcc0010\n"
    "2,00:00:00.000004,free,0xffffffffffffff00,18446744073709551615,0\n";
constexpr std::string_view kLegacy =
    "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current "
    "Allocs,Start,End,Elapsed,"
    "Location\n"
    "Alloc,1,0x100,0x2,10,1,1048576,1,1.5,1.5,1e-06,C:\\a \"b\", c.py:7\n"
    "Realloc,1,0x100,0x2,20,1,1048576,1,1.5,1.5,1e-06,\n";
constexpr std::string_view kNumba =
    R"({"op":"hostalloc","size":64,"mapped":true,"portable":false,"wc":true,"ptr":12288,"seq":1,"t_ns":1,"tid":7})"
    "\n"
    R"({"op":"managed","size":32,"attach_global":false,"ptr":8192,"seq":2,"t_ns":2,"tid":8})"
    "\n"
    R"({"op":"pin","size":8,"mapped":true,"ptr":20500,"seq":3,"t_ns":3,"tid":7})"
    "\n"
    R"({"op":"ipc_export","ptr":8200,"size":8,"offset":8,"seq":4,"t_ns":4,"tid":7})"
    "\n"
    R"({"op":"pending_add","dtor":"cuMemFreeHost","ptr":12288,"size":64,"seq":5,"t_ns":5,"tid":7})"
    "\n"
    R"({"op":"pending_flush","n":1,"bytes":64,"seq":6,"t_ns":6,"tid":7})"
    "\n";
constexpr std::string_view kTorch =
    "{\"name\": \"m\", \"torch\": \"2.11\", \"device\": \"NVIDIA H200\", \"stats\": {\"a\": [1, "
    "2.5, null]}}\n"
    "[\"segment_map\",1000,100,0,1]\n"
    "[\"alloc\",1000,100,5,1]\n"
    "[\"free_requested\",1000,100,5,2]\n"
    "[\"oom\",7,100,0,3]\n"
    "[\"free_completed\",1000,100,5,4]\n"
    "[\"snapshot\",0,0,0,5]\n";

constexpr std::pair<std::string_view, std::string_view> kFiles[] = {{"rmm-csv", kRmm},
                                                                    {"rmm-legacy-csv", kLegacy},
                                                                    {"numba-calls", kNumba},
                                                                    {"torch-events", kTorch}};

TEST(RoundTrip, StartsFromTracesThatAReplayCanRelyOn) {
  for (const auto& [format, file] : kFiles) {
    Trace trace;

    const auto counts =
        (*find_importer(format))->read(*format::ByteSource::memory(file), trace, {});

    ASSERT_TRUE(counts) << format << ": " << describe(counts.error());
    EXPECT_GE(trace.size(), 3u) << format;
  }
}

TEST(RoundTrip, GivesTheSameOperationsOfEveryFormatInBothForms) {
  for (const auto& [format, file] : kFiles) {
    Imported imported;
    imported.with_lines = false;
    ASSERT_TRUE((*find_importer(format))->read(*format::ByteSource::memory(file), imported, {}))
        << format;
    ASSERT_GT(imported.operations.size(), 3u);

    for (const auto form : {Form::lines, Form::document}) {
      std::string written;
      const auto out = format::ByteSink::to_string(written);
      const auto writer = make_writer(*out, form);
      ASSERT_TRUE((*find_importer(format))->read(*format::ByteSource::memory(file), *writer, {}))
          << format;
      ASSERT_TRUE(out->flush());

      const auto source = format::ByteSource::memory(written);
      ASSERT_EQ((*detect(*source))->name, "emm");
      Imported again;
      again.with_lines = false;
      const auto counts = (*find_importer("emm"))->read(*source, again, {});

      ASSERT_TRUE(counts) << describe(counts.error()) << "\n" << written;
      EXPECT_EQ(again.text(), imported.text()) << format;
      EXPECT_EQ(counts->used, imported.operations.size());
      EXPECT_EQ(again.header.requires_, imported.header.requires_);
      EXPECT_EQ(again.header.devices, imported.header.devices);
      EXPECT_EQ(again.header.default_thread, imported.header.default_thread);
      EXPECT_EQ(again.header.framework, imported.header.framework);
      EXPECT_EQ(again.header.name, imported.header.name);
      EXPECT_EQ(again.header.source_options.empty(), imported.header.source_options.empty());
    }
  }
}

TEST(EmmImporter, CountsExtensionsAsOtherRowsAndATornTailAsTruncated) {
  constexpr std::string_view kTrace =
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n"
      "{\"op\":\"initialize\"}\n"
      "{\"op\":\"x-note\",\"a\":1}\n"
      "{\"op\":\"reset\"";

  const auto trace = import_text("emm", kTrace, true);

  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(summary(trace.counts), "rows 3: used 1, other 1, truncated 1");
  EXPECT_EQ(text::join(trace.counts.notes, "\n"),
            "1 operations are extensions, which a replay skips\n"
            "run.log:4: the file ends inside a line");
  EXPECT_NE(import_text("emm", kTrace).error, "");
}

}  // namespace
}  // namespace emm::trace
