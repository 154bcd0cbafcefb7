#include "log/writer.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "read_file.hpp"
#include "rows.hpp"

namespace emm::log {
namespace {

using trace::Op;
using trace::Outcome;

constexpr std::uint64_t kNow = 6'840'576'568'999;  // 01:54:00.576568999

Record allocated() {
  return {.seq = 0,
          .begin_ns = kNow - 2'000'000,
          .end_ns = kNow,
          .pointer = 0x700000000000,
          .size = 10302908,
          .id = 0,
          .thread = 0,
          .stream = 1,
          .context = 0,
          .op = Op::memalloc};
}
Record refused() {
  return {.seq = 1,
          .begin_ns = kNow,
          .end_ns = kNow + 1000,
          .pointer = 0,
          .size = 99999999999999,
          .id = 1,
          .thread = 0,
          .stream = 0,
          .context = 1,
          .op = Op::memalloc,
          .freed_kind = Op::memalloc,
          .outcome = Outcome::oom,
          .device = 1};
}
Record freed() {
  auto record = allocated();
  record.op = Op::free;
  record.begin_ns = kNow + 39'000;
  record.end_ns = kNow + 5'000'000;
  return record;
}
Gauges state() {
  return {.live_bytes = 10302908,
          .live_count = 1,
          .reserved_bytes = 10485760,
          .free_bytes = 1048064,
          .total_bytes = 1048576};
}

struct Folder {
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "emm_log_XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& file) const { return path + "/" + file; }
  std::string path;
};

TEST(RmmLog, HasARowForEachAllocationFailureAndFreeOfDeviceMemory) {
  const auto trace = names();
  Written log("rmm", trace);

  log.writer->on_record(allocated(), state());
  log.writer->on_record(refused(), state());
  auto host = allocated();
  host.op = Op::memhostalloc;
  log.writer->on_record(host, state());
  auto host_freed = freed();
  host_freed.freed_kind = Op::memhostalloc;
  log.writer->on_record(host_freed, state());
  log.writer->on_record({.seq = 3, .op = Op::get_memory_info}, state());
  log.writer->on_record(freed(), state());

  EXPECT_EQ(log.finish(),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "23150,01:54:00.576568,allocate,0x700000000000,10302908,0x55aabbcc0010\n"
            "23150,01:54:00.576569,allocate failure,(nil),99999999999999,0\n"
            "23150,01:54:00.576607,free,0x700000000000,10302908,0x55aabbcc0010\n");
}

TEST(RmmLog, WhatAResetEndsIsFreedThereAndNotAgainWhenItsFinalizerRuns) {
  const auto trace = names();
  Written log("rmm", trace);

  auto ended = freed();
  ended.op = Op::reset;
  log.writer->on_record(ended, state());
  log.writer->on_record({.seq = 3, .begin_ns = kNow, .op = Op::reset}, state());
  auto late = freed();
  late.late = true;
  log.writer->on_record(late, state());

  EXPECT_EQ(log.finish(),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "23150,01:54:00.576607,free,0x700000000000,10302908,0x55aabbcc0010\n");
}

TEST(RmmLog, TheTimeIsThatOfTheDayAndWrapsAtMidnight) {
  const auto trace = names();
  Written log("rmm", trace, -1, {.day_ns_at_zero = 86'399'000'000'000});

  auto record = allocated();
  record.end_ns = 1'000'001'000;
  log.writer->on_record(record, state());

  EXPECT_EQ(log.finish(),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "23150,00:00:00.000001,allocate,0x700000000000,10302908,0x55aabbcc0010\n");
}

TEST(RmmLegacyLog, HasTheDeviceItsMemoryTheLiveCountTheTimesAndTheSite) {
  const auto trace = names();
  Written log("rmm-legacy", trace);

  log.writer->on_record(allocated(), state());
  log.writer->on_record(refused(), state());
  log.writer->on_record(freed(), state());

  EXPECT_EQ(log.finish(),
            "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current "
            "Allocs,Start,End,"
            "Elapsed,Location\n"
            "Alloc,0,0x700000000000,0x55aabbcc0010,10302908,1048064,1048576,1,6840.57,6840.58,0."
            "002,model.py:88\n"
            "Alloc,1,0,0,99999999999999,1048064,1048576,1,6840.58,6840.58,1e-06,\n"
            "Free,0,0x700000000000,0x55aabbcc0010,10302908,1048064,1048576,0,6840.58,6840.58,0."
            "004961,model.py:88\n");
}

TEST(EmmLog, HasAColumnForEverything) {
  const auto trace = names();
  Written log("emm", trace);

  log.writer->on_record(allocated(), state());
  log.writer->on_record(refused(), state());
  auto late = freed();
  late.late = true;
  log.writer->on_record(late, state());
  log.writer->on_record(
      {.seq = 1, .begin_ns = 1, .end_ns = 2, .op = Op::get_memory_info, .repeat = 3}, {});

  EXPECT_EQ(log.finish(),
            "seq,line,repeat,op,of,outcome,late,id,pointer,size,device,context,thread,stream,begin_"
            "ns,end_ns,"
            "live_bytes,live_count,reserved_bytes,free_bytes,total_bytes\n"
            "0,3,0,memalloc,,ok,,\"weights, "
            "\"\"all\"\"\",0x700000000000,10302908,0,main,23150,94191783510032,"
            "6840574568999,6840576568999,10302908,1,10485760,1048064,1048576\n"
            "1,4,0,memalloc,,oom,,7,0x0,99999999999999,1,second,23150,legacy,"
            "6840576568999,6840576569999,10302908,1,10485760,1048064,1048576\n"
            "0,3,0,free,memalloc,ok,late,\"weights, "
            "\"\"all\"\"\",0x700000000000,10302908,0,main,23150,94191783510032,"
            "6840576607999,6840581568999,10302908,1,10485760,1048064,1048576\n"
            "1,4,3,get_memory_info,,ok,,,,,0,main,23150,legacy,1,2,0,0,0,0,0\n");
}

TEST(OpenLog, NamesAFilePerDeviceAsRmmDoes) {
  const auto trace = names();
  const Folder folder;

  auto log = open_log(folder / "run.csv", "rmm", trace);
  ASSERT_TRUE(log) << describe(log.error());
  (*log)->on_record(allocated(), state());
  (*log)->on_record(refused(), state());
  ASSERT_TRUE((*log)->finish());

  EXPECT_EQ(read_file(folder / "run.dev0.csv"),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "23150,01:54:00.576568,allocate,0x700000000000,10302908,0x55aabbcc0010\n");
  EXPECT_EQ(read_file(folder / "run.dev1.csv"),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "23150,01:54:00.576569,allocate failure,(nil),99999999999999,0\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "run.csv"));
}

TEST(OpenLog, AnUnknownFormatIsAnErrorThatListsTheKnown) {
  const auto log = open_log("/dev/null", "xml", names());

  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, Errc::usage);
  EXPECT_EQ(log.error().message, "no log format xml: expected one of rmm, rmm-legacy, emm");
}

TEST(OpenLog, AFileThatCannotBeWrittenFailsBeforeTheRun) {
  EXPECT_EQ(open_log("/nowhere/run.csv", "rmm", names()).error().code, Errc::usage);
}

TEST(OpenLog, AKilledProcessLeavesWholeLines) {
  const auto trace = names();
  const Folder folder;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);

  const pid_t child = fork();
  if (child == 0) {
    auto log = open_log(folder / "run.csv", "emm", trace);
    for (int i = 0; i < 10'000; ++i) (*log)->on_record(allocated(), state());
    if (write(pipe_ends[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  const auto text = read_file(folder / "run.dev0.csv");
  ASSERT_GT(text.size(), 1'000'000u) << "lines do not wait for the end";
  EXPECT_EQ(text.back(), '\n');
  std::istringstream lines(text);
  std::string line, first;
  std::getline(lines, line);
  std::getline(lines, first);
  for (std::uint64_t count = 0; std::getline(lines, line); ++count)
    ASSERT_EQ(line, first) << "line " << count;
}

}  // namespace
}  // namespace emm::log
