#include "plugin/child.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "driver/device_entry.hpp"
#include "emm/context.hpp"

namespace emm::plugin {
namespace {

using namespace std::chrono_literals;
using Kind = ChildEnd::Kind;

constexpr auto kLong = 60s;

/// Two allocations and a free on a plugin that goes wrong as `how` says.
ChildEnd run_hostile(const std::string& how, std::chrono::milliseconds deadline = kLong) {
  auto end = run_in_child(deadline, [&] {
    auto platform = *open_platform("sim:capacity=64MiB", {});
    auto device = *platform->open(0);
    const auto factory = *find_manager(PLUGINS "hostile.so:" + how);
    const auto context = *Context::create(device, platform->clock(), factory);
    auto first = context->memalloc(64);
    auto second = context->memalloc(64);
    const bool freed = first && first->free().has_value();
    return std::string(second && freed ? "served" : "refused");
  });
  EXPECT_TRUE(end) << describe(end.error());
  return *std::move(end);
}

TEST(RunInChild, GivesTheBytesThatTheWorkReturns) {
  std::string bytes(100'000, 'x');
  bytes[7] = '\0';

  const auto end = run_in_child(kLong, [&] { return bytes; });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::answered);
  EXPECT_EQ(end->bytes, bytes);
  EXPECT_EQ(describe(*end, kLong), "");
}

TEST(RunInChild, LetsNothingElseOut) {
  int here = 1;

  const auto end = run_in_child(kLong, [&] {
    here = 2;
    std::puts("on stdout");
    return std::string();
  });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::answered);
  EXPECT_EQ(here, 1);
  EXPECT_EQ(end->said, "on stdout\n");
}

TEST(RunInChild, AManagerThatBehavesAnswers) {
  const auto end = run_hostile("");

  EXPECT_EQ(end.kind, Kind::answered);
  EXPECT_EQ(end.bytes, "served");
  EXPECT_FALSE(end.inside);
}

TEST(RunInChild, ACrashIsAValueWithTheSignalAndTheCall) {
  const auto end = run_hostile("memalloc=crashes");

  EXPECT_EQ(end.kind, Kind::crashed);
  EXPECT_EQ(end.signal, SIGSEGV);
  EXPECT_EQ(end.last_call, "memalloc");
  EXPECT_TRUE(end.inside);
  EXPECT_EQ(describe(end, kLong), "crashed by SIGSEGV in memalloc");
}

TEST(RunInChild, AnAbortIsACrash) {
  const auto end = run_hostile("free=aborts");

  EXPECT_EQ(end.kind, Kind::crashed);
  EXPECT_EQ(end.signal, SIGABRT);
  EXPECT_EQ(describe(end, kLong), "crashed by SIGABRT in free");
}

TEST(RunInChild, AHangEndsAtTheDeadline) {
  const auto end = run_hostile("free=hangs", 300ms);

  EXPECT_EQ(end.kind, Kind::hung);
  EXPECT_EQ(describe(end, 300ms), "did not end in 300 ms, in free");
}

TEST(RunInChild, ADeadlineForAStepIsNotForAllOfThem) {
  const ChildOptions options{.deadline = 1s, .deadline_is_for_a_step = true};
  const auto slow = run_in_child(options, [](const std::atomic<bool>&) -> std::string {
    for (int i = 0; i < 6; ++i) {
      const RunningCall running("memalloc");
      std::this_thread::sleep_for(250ms);
    }
    return "whole";
  });
  const auto hung = run_in_child(options, [](const std::atomic<bool>&) -> std::string {
    const RunningCall running("free");
    while (true) pause();
  });

  ASSERT_TRUE(slow && hung);
  EXPECT_EQ(slow->bytes, "whole");
  EXPECT_EQ(describe(*hung, 1s), "did not end in 1000 ms, in free");
}

TEST(RunInChild, AnExitIsNoAnswer) {
  for (const auto* how : {"memalloc=exits", "memalloc=leaves"}) {
    const auto end = run_hostile(how);

    EXPECT_EQ(end.kind, Kind::exited);
    EXPECT_EQ(end.last_call, "memalloc");
    EXPECT_TRUE(end.inside);
  }
}

TEST(RunInChild, ADamagedHeapIsToldFromACrash) {
  const auto end = run_hostile("memalloc=damages");

  EXPECT_EQ(end.kind, Kind::heap_damaged) << end.said;
  EXPECT_EQ(describe(end, kLong), "damaged the heap, found in memalloc");
}

TEST(RunInChild, ACrashAfterTheLastCallIsToldSo) {
  const auto end = run_in_child(kLong, []() -> std::string { std::abort(); });

  ASSERT_TRUE(end);
  EXPECT_EQ(describe(*end, kLong), "crashed by SIGABRT before any call");
}

TEST(RunInChild, AnExceptionOfTheWorkIsACrashThatSaysWhy) {
  const auto end =
      run_in_child(kLong, []() -> std::string { throw std::runtime_error("no room"); });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::crashed);
  EXPECT_NE(end->said.find("no room"), std::string::npos);
}

TEST(RunInChild, LeavesNothingRunning) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);

  const auto end = run_in_child(kLong, [] {
    if (fork() == 0) {
      while (true) pause();
    }
    return std::string("whole");
  });

  // The grandchild holds the answer's pipe open too; the deadline is not waited for.
  ASSERT_TRUE(end);
  EXPECT_EQ(end->bytes, "whole");
  close(pipes[1]);
  char byte = 0;
  EXPECT_EQ(read(pipes[0], &byte, 1), 0) << "nobody holds the other end";
  close(pipes[0]);
}

TEST(RunInChild, ACallThatDoesNotReturnEndsTheChildBeforeTheWholeDeadline) {
  const auto end = run_in_child({.deadline = kLong, .call_deadline = 100ms},
                                [](const std::atomic<bool>&) -> std::string {
                                  const RunningCall running("memalloc");
                                  while (true) pause();
                                });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::hung);
  EXPECT_TRUE(end->in_one_call);
  EXPECT_EQ(end->last_call, "memalloc");
}

TEST(RunInChild, SaysWhichEventTheCallServed) {
  const auto end = run_in_child({.deadline = kLong}, [](const std::atomic<bool>&) -> std::string {
    mark_events_of([]() noexcept -> std::uint64_t { return 41; });
    const RunningCall running("free");
    std::abort();
  });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->event, 41u);
}

TEST(RunInChild, AnInterruptIsHeardByTheWork) {
  const std::atomic<bool> interrupted{true};

  const auto end = run_in_child({.interrupted = &interrupted}, [](const std::atomic<bool>& told) {
    while (!told.load()) usleep(100);
    return std::string("stopped");
  });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::answered);
  EXPECT_EQ(end->bytes, "stopped");
}

TEST(RunInChild, AnInterruptEndsACallThatDoesNotReturn) {
  const std::atomic<bool> interrupted{true};

  const auto end =
      run_in_child({.interrupted = &interrupted}, [](const std::atomic<bool>&) -> std::string {
        const RunningCall running("free");
        while (true) pause();
      });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::interrupted);
}

TEST(RunInChild, AnAnswerIsWholeWhereACrashComesAfterIt) {
  const auto end = run_in_child({.runs_exit_handlers = true}, [](const std::atomic<bool>&) {
    std::atexit(std::abort);
    return std::string("whole");
  });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::crashed);
  EXPECT_TRUE(end->whole);
  EXPECT_EQ(end->bytes, "whole");
}

TEST(RunInChild, AnAnswerNeedsNoDescriptor) {
  const auto end = run_in_child(kLong, [] {
    for (int file = 0; file < 256; ++file) close(file);
    return std::string("whole");
  });

  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, Kind::answered);
}

TEST(RunInChild, EndsAlsoWhatHasLeftItsGroup) {
  const SharedMemory memory(sizeof(std::atomic<pid_t>));
  auto& escaped = *new (memory.bytes().data()) std::atomic<pid_t>(0);

  const auto end = run_in_child(kLong, [&] {
    if (fork() == 0) {
      setsid();
      escaped.store(getpid());
      while (true) pause();
    }
    while (escaped.load() == 0) usleep(100);
    return std::string();
  });

  ASSERT_TRUE(end);
  EXPECT_NE(kill(escaped.load(), 0), 0);
}

}  // namespace
}  // namespace emm::plugin
