#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"

namespace emm::trace {
namespace {

std::string detected(std::string_view file) {
  const auto source = format::ByteSource::memory(file, "run.log");
  const auto importer = detect(*source);
  return importer ? std::string((*importer)->name) : std::string(importer.error().message);
}

std::string known() {
  std::vector<std::string_view> names;
  for (const auto* importer : bundled_importers()) names.push_back(importer->name);
  return text::join(names);
}

constexpr std::string_view kFiles[][2] = {
    {"emm", R"({"format":"emmctl-trace","version":"1.0"})"},
    {"emm", "{\n  \"format\": \"emmctl-trace\", \"version\": \"1.0\",\n  \"events\": []\n}\n"},
    {"rmm-csv", "Thread,Time,Action,Pointer,Size,Stream\n"},
    {"rmm-csv", "Thread,Time,Action,Pointer,Size,Stream\r\n1,00:00:00.000000,free,0x1,1,0\r\n"},
    {"rmm-csv", "Time,Action,Pointer,Size,Stream\n"},
    {"rmm-csv", "1,00:00:00.000000,free,0x1,1,0\n"},
    {"rmm-legacy-csv",
     "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current "
     "Allocs,Start,End,Elapsed,"
     "Location\n"},
    {"numba-calls", R"({"op":"initialize","seq":1,"t_ns":147824,"tid":589})"},
    {"torch-events",
     "{\"name\": \"x\", \"torch\": \"2.11\", \"stats\": {}}\n[\"alloc\",1,2,0,3]\n"},
    {"torch-events", "[\"segment_alloc\",1,2,0,3]\n"},
    {"torch-events", "\xef\xbb\xbf\n[\"alloc\",1,2,0,3],\n"},
    {"numba-calls",
     "\xef\xbb\xbf\n {\"op\":\"initialize\",\"seq\":1,\"t_ns\":147824,\"tid\":589}\n"},
    {"dsa-csv", "1,0,5,64\n2,5,9,64\n"},
    {"cupy-hooks", "[\"dev_alloc\", 4096, 512, 0, 100]\n[\"alloc\", 4096, 24, 0, 101, 512]\n"},
    {"cupy-hooks", "[\"free\", 4096, 512, 0, 100]\n"},
    {"cupy-hooks",
     "{\"hook\":\"alloc\",\"device_id\":0,\"mem_size\":512,\"mem_ptr\":150496608256}\n"},
    {"umpire-replay",
     "{\"category\":\"metadata\",\"name\":\"version\",\"numeric_args\":{\"major\":2022},\"tags\":{}"
     ",\"timestamp\":1}\n"},
    {"umpire-replay",
     "# comment\n{ \"kind\":\"replay\", \"uid\":7, \"timestamp\":1, \"event\": \"version\", "
     "\"payload\": { } }\n"},
    {"dsa-csv", "id,lower,upper,size\n"},
    {"dsa-csv", "id,start,end,size\r\n0,1,2,3\r\n"},
    {"dsa-csv", "buffer_id,lower,upper,size,alignment,hint,gaps,offset\n"},
    {"allocator-sim", "0 3 512\n1 2 1024\n"},
    {"stalloc", "1 0x7f00 512 0\n0 0x7f00 512 0\n"},
    {"stalloc", "Iteration Index : 0\nmicro-batch : F\n1 139792794779648 512 0\n"},
    {"torch-profiler", "{\"traceEvents\":[{\"ph\":\"i\",\"name\":\"[memory]\",\"ts\":1}]}"},
    {"torch-profiler",
     "{\n \"schemaVersion\": 1,\n \"traceEvents\": [\n {\"ph\": \"X\", \"cat\": \"cpu_op\""},
    {"torch-profiler", "[{\"name\": \"[memory]\", \"ph\": \"i\", \"ts\": 1}]"},
    {"torch-timeline", "[[-1, 1, 400, 0], [10, 2, 8, 7]]"},
    {"torch-timeline", "[[1, 2, 3, 4], [[0, 1, 2, 3, 4, 5, 6, 7, 8]"},
    {"torch-timeline", "[[10, 20, 30, 40, 50"},
    {"torch-timeline", "<html>\n<head><title>GPU Memory Timeline HTML</title></head>"},
    {"nsys-sqlite", std::string_view("SQLite format 3\0\x10\0", 18)},
    {"ops-list", "a x 512\nf x\n"},
    {"bfc-dump",
     "W bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB\n"
     "I bfc_allocator.cc:1066] InUse at 7fa140000000 of size 536870912 next 878\n"},
    {"ort-arena",
     "2026-11-28 09:37:41.573212 [I:onnxruntime:test, bfc_arena.cc:150 Extend] Allocated memory at "
     "0x7fb7d6cb7000 to 0x7fb7d70b7000\n"},
    {"ops-list", "# made by hand\na 1 512\n"},
};

TEST(Detect, KnowsEachFormatByItsContent) {
  for (const auto& [format, file] : kFiles) EXPECT_EQ(detected(file), format) << file;
}

TEST(Detect, IsSureOfOneFormatOnly) {
  for (const auto& [format, file] : kFiles) {
    for (const auto* importer : bundled_importers()) {
      const auto sure = importer->sniff(file);
      EXPECT_EQ(sure >= 50, importer->name == format) << importer->name << " of " << file;
    }
  }
}

TEST(Detect, TakesForeignFilesForNone) {
  const auto words = text::format(
      "run.log: the format is not known: expected a trace of a known format: {}", known());

  for (const std::string_view file :
       {"{\"name\": \"x\", \"torch\": \"2.11\", \"stats\": {}}",
        "{\"name\": \"x\", \"torch\": \"2.11\", \"stats\": {}}\n", "hello\n", "{}", "[]", "\n\n",
        "{\"events\":[{\"message\":\"CUDA\"}]}", "1,2,3\n", "{\"op\":\"alloc\"}\n",
        "[\"a\",1]\n"}) {
    EXPECT_EQ(detected(file), words) << file;
  }
}

TEST(Detect, SaysThatAFileIsEmpty) {
  EXPECT_EQ(
      detected(""),
      text::format("run.log: the file is empty: expected a trace of a known format: {}", known()));
}

TEST(Detect, ConsumesNothing) {
  const auto source =
      format::ByteSource::memory("Thread,Time,Action,Pointer,Size,Stream\n", "run.log");

  ASSERT_TRUE(detect(*source));

  const auto bytes = source->next();
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->substr(0, 6), "Thread");
}

TEST(Detect, FindsFormatsByName) {
  for (const auto* importer : bundled_importers()) {
    const auto found = find_importer(importer->name);
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, importer);
  }
  EXPECT_EQ(find_importer("rmm").error().message,
            text::format("unknown format 'rmm': known are {}", known()));
}

TEST(Importers, HaveAFuzzersCorpusEach) {
  const auto corpora = std::filesystem::path(EMM_SOURCE_DIR) / "tests/fuzz/corpus/import_fuzz";
  for (const auto* importer : bundled_importers()) {
    EXPECT_TRUE(std::filesystem::is_directory(corpora / importer->name)) << importer->name;
  }
}

}  // namespace
}  // namespace emm::trace
