#include "inspect/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "exchange/importer.hpp"
#include "format/json_writer.hpp"
#include "format/printed_lines.hpp"

namespace emm::inspect {
namespace {

std::string golden(const std::string& name) {
  std::ifstream file(EMM_SOURCE_DIR "/tests/golden/inputs/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The name of the reader that is sure of the text; "" if there is none.
std::string reader_of(std::string_view text) {
  const auto source = format::ByteSource::memory(text, "f");
  const auto reader = detect_statistics(*source);
  return reader && *reader != nullptr ? std::string((*reader)->name) : "";
}

Statistics stated(std::string_view text) {
  const auto source = format::ByteSource::memory(text, "f");
  const auto reader = detect_statistics(*source);
  EXPECT_TRUE(reader && *reader != nullptr);
  if (!reader || *reader == nullptr) return {};
  auto read = (*reader)->read(*source);
  EXPECT_TRUE(read) << describe(read.error());
  return read ? *read : Statistics{};
}

const Figure* figure(const Statistics& of, std::string_view name) {
  for (const auto& group : of.groups) {
    for (const auto& each : group.figures) {
      if (each.name == name) return &each;
    }
  }
  return nullptr;
}

Stated value(const Statistics& of, std::string_view name) {
  const auto* const found = figure(of, name);
  EXPECT_TRUE(found != nullptr && found->value) << name;
  return found != nullptr && found->value ? *found->value : Stated{};
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(Statistics, KnowsEachFormatByItsContent) {
  EXPECT_EQ(reader_of(golden("memory_summary.txt")), "torch-summary");
  EXPECT_EQ(reader_of(golden("memory_stats.json")), "torch-stats");
  EXPECT_EQ(reader_of(golden("memory_stats.txt")), "torch-stats");
  EXPECT_EQ(reader_of(golden("memory_stats_nested.json")), "torch-stats");
  EXPECT_EQ(reader_of(golden("deepspeed.log")), "deepspeed");
  EXPECT_EQ(reader_of(golden("smi_gpu.csv")), "nvidia-smi");
  EXPECT_EQ(reader_of(golden("smi_apps.csv")), "nvidia-smi");
  EXPECT_EQ(reader_of(golden("leaks.txt")), "compute-sanitizer");
  EXPECT_EQ(reader_of(golden("after.prof")), "jax-profile");
  for (const std::string_view other : {"", "hello\n", "{}", "a,b\n1,2\n", "=========\n", "MA 3",
                                       "1,foo,3\n", "1, 2\n", "7, 8, 9\n", "step 3, loss 0.1\n"})
    EXPECT_EQ(reader_of(other), "") << other;
}

TEST(Inputs, AreAllInTheTableOfTheDocs) {
  std::ifstream file(EMM_SOURCE_DIR "/docs/inputs.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto has = [&](std::string_view name) {
    return page.find('`' + std::string(name) + '`') != std::string::npos;
  };
  for (const auto* importer : trace::bundled_importers())
    EXPECT_TRUE(has(importer->name)) << importer->name;
  for (const auto* reader : statistics_readers()) EXPECT_TRUE(has(reader->name)) << reader->name;
}

TEST(Statistics, ASummaryThatRoundsDownGivesRanges) {
  const auto read = stated(golden("memory_summary.txt"));

  EXPECT_EQ(value(read, "reserved"), (Stated{4096 * kMiB, 4097 * kMiB - 1}));
  // 4096 less 1100 active and 996 stuck, each up to a MiB more.
  EXPECT_EQ(value(read, "  returnable: in free segments"),
            (Stated{1998 * kMiB + 2, 2001 * kMiB - 1}));
  EXPECT_EQ(value(read, "requests that failed"), Stated::exactly(2));
}

TEST(Statistics, ASummaryMayHaveALaunchersWordsInFront) {
  const auto plain = stated(golden("memory_summary.txt"));
  for (const std::string_view prefix :
       {"[rank3]: ", "2026-02-03T10:11:12.123456789Z ", "worker-1  | "}) {
    const auto text = golden("memory_summary.txt");
    std::string log;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
      log.append(prefix).append(text.substr(at, end - at));
      at = end;
    }
    EXPECT_EQ(stated(log).groups, plain.groups) << prefix;
  }
}

TEST(Statistics, TheTablesOfNvidiaSmiAreRead) {
  const auto of = stated(
      "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0     |\n"
      "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |        0 |\n"
      "| N/A   35C    P0             120W / 700W |   70312MiB /  81559MiB |     97%  |\n"
      "| Processes:                                                                  |\n"
      "|  GPU   GI   CI              PID   Type   Process name            GPU Memory |\n"
      "|    0   N/A  N/A            1234      C   python                    70300MiB |\n"
      "|    0      77      C   /usr/bin/old                                    12MiB |\n");

  ASSERT_EQ(of.groups.size(), 3u);
  EXPECT_EQ(of.groups[0].name, "GPU 0");
  EXPECT_EQ(of.groups[0].figures[0].value, (Stated{70311 * kMiB, 70313 * kMiB}));
  EXPECT_EQ(of.groups[1].name, "GPU 0, process 1234 python");
  EXPECT_EQ(of.groups[1].figures[0].value, (Stated{70299 * kMiB, 70301 * kMiB}));
  EXPECT_EQ(of.groups[2].name, "GPU 0, process 77 /usr/bin/old");
}

TEST(Statistics, SaysThatAllOfAGapIsStuckWhereTheDigitsLeaveNothingElse) {
  const auto read = stated(
      "|  PyTorch CUDA memory summary, device ID 0  |\n"
      "| Allocated memory      |    659 MB  |    4460 MB |\n"
      "| GPU reserved memory   |   9354 MB  |    9766 MB |\n"
      "| Non-releasable memory |   8695 MB  |    8766 MB |\n");

  ASSERT_FALSE(read.reading.empty());
  EXPECT_NE(read.reading[0].find("All of that gap is in partly used segments"), std::string::npos)
      << read.reading[0];
}

TEST(Statistics, PrintedAndNestedStatisticsAreTheSameAsJson) {
  const auto json = stated(golden("memory_stats.json"));
  for (const char* const name : {"memory_stats.txt", "memory_stats_nested.json"}) {
    const auto other = stated(golden(name));
    ASSERT_EQ(other.groups.size(), json.groups.size());
    EXPECT_EQ(other.groups[0].figures, json.groups[0].figures) << name;
  }
  EXPECT_EQ(value(json, "  returnable: in free segments"), Stated::exactly(20971520));
  EXPECT_EQ(value(json, "of the allocated: rounding"), Stated::exactly(97152));
}

TEST(Statistics, WhatIsNotStatedIsUnknown) {
  const auto read = stated(R"({"allocated_bytes.all.current": 5, "x": {"y": "z"}})");

  EXPECT_EQ(value(read, "allocated"), Stated::exactly(5));
  const auto* const reserved = figure(read, "reserved");
  ASSERT_NE(reserved, nullptr);
  EXPECT_FALSE(reserved->value);
}

TEST(Statistics, DeepSpeedsFiguresAreOfTheLastLineAndItsPeaksOfAll) {
  const auto read = stated(golden("deepspeed.log"));

  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.rows[0].name, "after backward");
  EXPECT_EQ(read.rows[0].count, 2u);
  const auto allocated = value(read, "allocated");
  EXPECT_LT(allocated.low, (std::uint64_t{41} << 30) / 4);
  EXPECT_GT(allocated.high, (std::uint64_t{41} << 30) / 4);
  EXPECT_NE(read.reading.back().find("flushed 3 times, in 2 steps"), std::string::npos);
}

TEST(Statistics, LeaksAreSummedByTheFirstFrameOfTheProgram) {
  const auto read = stated(golden("leaks.txt"));

  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.rows[0].name, "make_buffer(int) in leak.cu:12");
  EXPECT_EQ(read.rows[0].bytes, 3072u);
  EXPECT_EQ(read.rows[0].count, 2u);
  EXPECT_EQ(value(read, "leaked, by the summary"), Stated::exactly(3584));
}

TEST(Statistics, NvidiaSmisProcessesAreToldWithoutAHeaderLine) {
  for (const std::string_view csv :
       {"4711, python, 17500 MiB\n4712, /usr/bin/x, 300 MiB\n",
        "4711, python, 17500\n4712, /usr/bin/x, 300\n", "4711, 17500 MiB\n4712, 300 MiB\n",
        "2026/03/01 10:00:00.000, GPU-1, 4711, python, 17500\n"}) {
    SCOPED_TRACE(csv);
    const auto read = stated(csv);
    ASSERT_FALSE(read.rows.empty());
    EXPECT_NE(read.rows[0].name.find("process 4711"), std::string::npos) << read.rows[0].name;
    EXPECT_EQ(read.rows[0].bytes, 17500 * kMiB);
  }
  const auto unknown = stated("4711, python, [N/A]\n");
  EXPECT_FALSE(figure(unknown, "most used")->value);
}

TEST(Statistics, NvidiaSmisColumnsOfAGpuAreNotGuessedWithoutAHeaderLine) {
  const std::pair<std::string_view, std::string_view> missing[] = {
      {"2026/03/01 10:00:00.000, 0, 17500 MiB, 81559 MiB\n",
       "timestamp, index, memory.used [MiB], memory.total [MiB]"},
      {"2026/03/01 10:00:00.000, 0, 17500, 81559\n",
       "timestamp, index, memory.used [MiB], memory.total [MiB]"},
      {"0, NVIDIA H100 80GB HBM3, 81559 MiB, 17500 MiB\n",
       "index, name, memory.total [MiB], memory.used [MiB]"},
      {"17500 MiB\n", "memory.used [MiB]"},
  };
  for (const auto& [csv, header] : missing) {
    SCOPED_TRACE(csv);
    const auto source = format::ByteSource::memory(csv, "smi.csv");
    const auto reader = detect_statistics(*source);
    ASSERT_TRUE(reader && *reader != nullptr);
    const auto read = (*reader)->read(*source);
    ASSERT_FALSE(read);
    EXPECT_NE(describe(read.error()).find(header), std::string::npos) << describe(read.error());
    EXPECT_EQ(stated(std::string(header) + '\n' + std::string(csv)).rows.size(), 1u);
  }
}

TEST(Statistics, GrowthOfTwoProfilesIsByFunction) {
  const auto growing = growth_of(stated(golden("before.prof")), stated(golden("after.prof")));

  ASSERT_EQ(growing.size(), 2u);
  EXPECT_EQ(growing[0].name, "train_step train.py:44 (buffer)");
  EXPECT_EQ(growing[0].before, kMiB);
  EXPECT_EQ(growing[0].after, 40 * kMiB);
}

std::string as_json(std::string_view text) {
  std::string out;
  format::append_json_string(out, text);
  return out;
}

/// What detect_statistics() finds in a file of strings, as JSON.
std::string printed_in(std::string_view text) {
  const auto source = format::printed_lines(format::ByteSource::memory(text, "f"));
  const auto reader = detect_statistics(*source);
  if (!reader || *reader == nullptr) return "no reader";
  const auto read = (*reader)->read(*source);
  return read ? to_json(*read, **reader, "f") : describe(read.error());
}

TEST(Statistics, AreTheSameInTheStringsOfLogsAndNotebooks) {
  for (const auto* const name : {"memory_summary.txt", "memory_stats.txt", "deepspeed.log",
                                 "smi_gpu.csv", "smi_apps.csv", "leaks.txt"}) {
    SCOPED_TRACE(name);
    const auto text = golden(name);
    const auto plain = printed_in(text);
    std::string docker, notebook = "{\"cells\":[{\"outputs\":[{\"text\":[\n";
    std::string_view rest = text;
    while (!rest.empty()) {
      const auto size = std::min(rest.find('\n'), rest.size() - 1) + 1;
      const auto line = rest.substr(0, size);
      docker += "{\"log\":" + as_json(line) + ",\"stream\":\"stdout\"}\n";
      rest.remove_prefix(size);
      notebook += "  " + as_json(line) + (rest.empty() ? "\n" : ",\n");
    }

    EXPECT_EQ(printed_in("{\"message\":" + as_json(text) + "}\n"), plain);
    EXPECT_EQ(printed_in(docker), plain);
    // A table in CSV begins its file.
    if (!text.starts_with("timestamp")) {
      EXPECT_EQ(printed_in(notebook + "]}]}]}\n"), plain);
    }
  }
}

TEST(PrintedLines, AreThoseOfStringsAndWhatIsNoString) {
  const auto printed = [](std::string_view text) {
    const auto source = format::printed_lines(format::ByteSource::memory(text, "f"));
    std::string out;
    for (auto some = source->next(); some && !some->empty(); some = source->next()) out += *some;
    return out;
  };
  EXPECT_EQ(printed("{\"a\":\"x\\n\\ty \\\"z\\\" \\u00e9\",\"b\":\"c\"}\n{\"d\":1}\n"),
            "x\n\ty \"z\" \xc3\xa9\n{\"d\":1}\n");
  EXPECT_EQ(printed("[\n \"a\\n\",\n \"b\"\n]\n"), "[\na\nb\n]\n");
  EXPECT_EQ(printed("{\"a\":\"cut\\n"), "{\"a\":\"cut\\n\n");
  EXPECT_EQ(printed("text \"a\\nb\"\n"), "text \"a\\nb\"\n") << "it is no JSON";
}

TEST(Statistics, NoTornFileDoesHarm) {
  for (const char* const name :
       {"memory_summary.txt", "memory_stats.json", "memory_stats.txt", "memory_stats_nested.json",
        "deepspeed.log", "smi_gpu.csv", "smi_apps.csv", "leaks.txt", "after.prof"}) {
    const auto whole = golden(name);
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 200) {
      const auto text = whole.substr(0, size);
      const auto source = format::ByteSource::memory(text, "f");
      const auto reader = detect_statistics(*source);
      if (!reader || *reader == nullptr) continue;
      const auto read = (*reader)->read(*source);
      if (read) {
        EXPECT_FALSE(to_text(*read, "f", 10).empty());
      }
    }
  }
}

}  // namespace
}  // namespace emm::inspect
