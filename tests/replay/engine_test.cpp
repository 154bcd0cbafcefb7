#include "replay/engine.hpp"

#include <gtest/gtest.h>

#include "emm/context.hpp"
#include "emm/memory_manager.hpp"
#include "fake_stack.hpp"
#include "trace/operation.hpp"
#include "trace_builder.hpp"

namespace emm::replay {
namespace {

using log::Violation;
using trace::Op;
using trace::Outcome;

log::Summary replay(const trace::Trace& trace, FakeStack& stack, ReplayOptions options = {}) {
  Engine engine(trace, stack, options);
  auto summary = engine.run();
  EXPECT_TRUE(summary) << describe(summary.error());
  return summary ? *summary : log::Summary{};
}

Error out_of_memory() { return {.code = Errc::out_of_memory, .native = 2, .call = "cuMemAlloc"}; }

TEST(Engine, ServesAndCountsWhatATraceAsksFor) {
  const auto trace = TraceBuilder()
                         .alloc(1, 1000)
                         .alloc(2, 24)
                         .free(1)
                         .managed(3, 76)
                         .host(4, 500)
                         .free(3)
                         .free(4)
                         .free(2)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.pass.events, 8u);
  EXPECT_EQ(summary.pass.allocs, 4u);
  EXPECT_EQ(summary.pass.frees, 4u);
  EXPECT_EQ(summary.pass.failures, 0u);
  EXPECT_EQ(summary.pass.leaked, 0u);
  EXPECT_EQ(summary.pass.peak_live_bytes, 1024u);
  EXPECT_EQ(summary.pass.peak_requested_bytes, 1024u);
  EXPECT_EQ(summary.pass.peak_reserved_bytes, 1024u);
  EXPECT_EQ(summary.pass.peak_host_bytes, 500u);
  EXPECT_EQ(summary.violation_count, 0u);
  EXPECT_FALSE(found_failure(summary, true));
  EXPECT_EQ(summary.trace, "test.jsonl");
  EXPECT_EQ(summary.clock, "simulated");
}

/// Three requests, of which the second is of a pool that ends behind it.
trace::Trace with_a_private_pool() {
  using Kind = trace::PoolStep::Kind;
  constexpr PrivatePool kGraph{1};
  auto trace = TraceBuilder().alloc(1, 8).alloc(2, 8).alloc(3, 8).free(1).free(2).free(3).done();
  trace.set_pool_steps({.device = 0,
                        .steps = {{.before = 0, .kind = Kind::use, .pool = {}},
                                  {.before = 1, .kind = Kind::use, .pool = kGraph},
                                  {.before = 2, .kind = Kind::drop, .pool = kGraph},
                                  {.before = 2, .kind = Kind::release_idle, .pool = {}},
                                  {.before = 2, .kind = Kind::use, .pool = {}}},
                        .pools = 1,
                        .requests = 1});
  return trace;
}

TEST(Engine, TellsAManagerOfWhichPoolARequestIs) {
  const auto trace = with_a_private_pool();
  FakeStack stack;
  stack.script.has_private_pools = true;

  const auto summary = replay(trace, stack, {.repeat = 2});

  constexpr PrivatePool kDefault{}, kGraph{1};
  const std::vector<PrivatePool> pools{kDefault, kGraph, kDefault};
  auto twice = pools;
  twice.insert(twice.end(), pools.begin(), pools.end());
  EXPECT_EQ(stack.seen.pools, twice);
  EXPECT_EQ(stack.seen.ended_pools,
            (std::vector<std::pair<PrivatePool, bool>>{{kGraph, true}, {kGraph, true}}));
  EXPECT_EQ(stack.seen.trims, (std::vector<std::uint64_t>{0, 0}));
  ASSERT_FALSE(summary.notes.empty());
  EXPECT_EQ(summary.notes.back(), "1 requests were served from 1 private pools, as recorded");
}

TEST(Engine, SaysThatAManagerHasNoPrivatePools) {
  const auto trace = with_a_private_pool();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_TRUE(stack.seen.ended_pools.empty());
  EXPECT_TRUE(stack.seen.trims.empty());
  ASSERT_FALSE(summary.notes.empty());
  EXPECT_EQ(summary.notes.back(),
            "1 requests are of 1 private pools, of graphs or MemPools: this manager has none, and "
            "served them like all others");
}

TEST(Engine, FollowsPrivatePoolsBesideThreadsOfTheirOwn) {
  const auto trace = with_a_private_pool();
  FakeStack stack;
  stack.script.has_private_pools = true;

  const auto summary = replay(trace, stack, {.threads = ReplayOptions::Threads::recorded});

  constexpr PrivatePool kDefault{}, kGraph{1};
  EXPECT_EQ(stack.seen.pools, (std::vector<PrivatePool>{kDefault, kGraph, kDefault}));
  EXPECT_EQ(stack.seen.trims, std::vector<std::uint64_t>{0});
}

/// Two requests. The free of the second waits until behind the free of the first.
trace::Trace with_a_delayed_free() {
  using Kind = trace::PoolStep::Kind;
  auto trace = TraceBuilder().alloc(1, 8).alloc(2, 8).free(2).free(1).alloc(3, 8).free(3).done();
  trace.set_pool_steps({.device = 0,
                        .steps = {{.before = 2, .kind = Kind::delay, .pool = {}, .free = 7},
                                  {.before = 4, .kind = Kind::complete, .pool = {}, .free = 7}},
                        .delays = 1});
  return trace;
}

TEST(Engine, TellsAManagerWhichFreeWaitsForOtherStreams) {
  const auto trace = with_a_delayed_free();
  FakeStack stack;
  stack.script.has_private_pools = true;

  const auto summary = replay(trace, stack);

  ASSERT_EQ(stack.seen.delays.size(), 1u);
  EXPECT_EQ(stack.seen.delays[0].first % 4096, 256u) << "the second block's address";
  EXPECT_EQ(stack.seen.delays[0].second, 7u);
  EXPECT_EQ(stack.seen.completed, std::vector<std::uint64_t>{7});
  ASSERT_FALSE(summary.notes.empty());
  EXPECT_EQ(summary.notes.back(),
            "1 frees waited for other streams, each until the recording says that it had "
            "completed");
}

TEST(Engine, CompletesWhatIsDelayedBetweenTwoPasses) {
  const auto trace = with_a_delayed_free();
  FakeStack stack;
  stack.script.has_private_pools = true;

  replay(trace, stack, {.repeat = 2});

  EXPECT_EQ(stack.seen.delays.size(), 2u);
  EXPECT_EQ(stack.seen.completed, (std::vector<std::uint64_t>{7, 7, 7}));
}

TEST(Engine, DelaysNoFreeOfWhatWasRefused) {
  const auto trace = with_a_delayed_free();
  FakeStack stack;
  stack.script.has_private_pools = true;
  stack.script.refuse = [](std::uint64_t n, std::uint64_t) -> std::optional<Error> {
    if (n != 1) return std::nullopt;
    return Error{.code = Errc::out_of_memory, .native = 2};
  };

  replay(trace, stack);

  EXPECT_TRUE(stack.seen.delays.empty());
}

TEST(Engine, SaysThatAManagerTookDelayedFreesAtOnce) {
  const auto trace = with_a_delayed_free();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  ASSERT_FALSE(summary.notes.empty());
  EXPECT_EQ(summary.notes.back(),
            "1 frees waited for other streams when this was recorded: this manager cannot be told "
            "how long, and took them at once");
}

TEST(Engine, TimesAreThoseOfTheRunsClock) {
  const auto trace = TraceBuilder().alloc(1, 8).alloc(2, 8).free(1).free(2).done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.latency = true});

  EXPECT_EQ(summary.pass.elapsed_ns, 300u);
  EXPECT_DOUBLE_EQ(summary.pass.ns_per_event, 75.0);
  ASSERT_TRUE(summary.alloc_latency && summary.free_latency);
  EXPECT_EQ(summary.alloc_latency->count, 2u);
  EXPECT_EQ(summary.alloc_latency->p50, 100u);
  EXPECT_EQ(summary.alloc_latency->max, 100u);
  EXPECT_EQ(summary.free_latency->p999, 50u);
}

TEST(Engine, TellsWhereWhatAndWhoHoldsMostWhenMemoryRunsOut) {
  const auto trace = TraceBuilder()
                         .on_thread(77)
                         .in_context(5)
                         .alloc(1, 4096)
                         .alloc(2, 64)
                         .alloc(3, 1 << 20)
                         .free(1)
                         .free(2)
                         .done();
  FakeStack stack({.refuse = [](std::uint64_t n, std::uint64_t) {
    return n == 2 ? std::optional(out_of_memory()) : std::nullopt;
  }});

  const auto summary = replay(trace, stack);

  EXPECT_TRUE(found_failure(summary, false));
  EXPECT_EQ(summary.pass.failures, 1u);
  EXPECT_EQ(summary.pass.peak_live_bytes, 4160u);
  EXPECT_EQ(summary.pass.peak_requested_bytes, 4160u + (1u << 20));
  ASSERT_TRUE(summary.first_failure);
  const auto& failure = *summary.first_failure;
  EXPECT_EQ(failure.event, 2u);
  EXPECT_EQ(failure.line, 4u);
  EXPECT_EQ(failure.op, Op::memalloc);
  EXPECT_EQ(failure.id, "3");
  EXPECT_EQ(failure.size, 1u << 20);
  EXPECT_EQ(failure.thread, 77u);
  EXPECT_EQ(failure.context, "5");
  EXPECT_EQ(failure.outcome, Outcome::oom);
  EXPECT_EQ(failure.error, "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(failure.live_bytes, 4160u);
  EXPECT_EQ(failure.reserved_bytes, 4160u);
  EXPECT_EQ(failure.free_bytes, FakeDriver::kSize - 4160);
  EXPECT_EQ(failure.largest_free_bytes, FakeDriver::kSize - 4160);
  ASSERT_EQ(failure.holders.size(), 2u);
  EXPECT_EQ(failure.holders[0].id, "1");
  EXPECT_EQ(failure.holders[0].size, 4096u);
  EXPECT_EQ(failure.holders[0].line, 2u);
  EXPECT_EQ(failure.holders[1].id, "2");
}

TEST(Engine, AFailureThatTheRecordingHasIsNone) {
  using B = TraceBuilder;
  const auto trace = B().add(B::recorded(B::sized(Op::memalloc, 1, 64), Outcome::oom))
                         .add(B::recorded(B::sized(Op::memalloc, 2, 64), Outcome::ok))
                         .add(B::recorded(B::sized(Op::memalloc, 3, 64), Outcome::oom))
                         .free(3)
                         .free(2)
                         .done();
  FakeStack stack({.refuse = [](std::uint64_t n, std::uint64_t) {
    return n == 0 ? std::optional(out_of_memory()) : std::nullopt;
  }});

  const auto summary = replay(trace, stack);

  EXPECT_FALSE(found_failure(summary, false));
  EXPECT_EQ(summary.outcomes.failed_as_recorded, 1u);
  EXPECT_EQ(summary.outcomes.succeeded_as_recorded, 1u);
  EXPECT_EQ(summary.outcomes.only_replay_succeeded, 1u);
  EXPECT_EQ(summary.outcomes.only_recording_succeeded, 0u);
}

TEST(Engine, WhatTheRecordedProgramWasRefusedIsFreedAsSoonAsItIsMade) {
  using B = TraceBuilder;
  for (const auto op : {Op::memalloc, Op::memallocmanaged, Op::memhostalloc}) {
    const auto trace = B().add(B::recorded(B::sized(op, 1, 64), Outcome::oom))
                           .add(B::sized(op, 2, 100))
                           .add(B::recorded(B::sized(op, 3, 64), Outcome::oom))
                           .free(2)
                           .done();
    FakeStack stack;

    const auto summary = replay(trace, stack);

    EXPECT_FALSE(found_failure(summary, false));
    EXPECT_EQ(summary.outcomes.only_replay_succeeded, 2u);
    EXPECT_EQ(summary.pass.leaked, 0u);
    EXPECT_EQ(summary.pass.frees, 3u);
  }
}

TEST(Engine, AnExpectationThatIsNotMetIsAFailure) {
  using B = TraceBuilder;
  const auto trace =
      B().add(B::expecting(B::sized(Op::memalloc, 1, 64), Outcome::oom)).free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].kind, Violation::Kind::unexpected);
  EXPECT_EQ(summary.violations[0].words, "memalloc of 1: ok, expected oom");
  EXPECT_TRUE(found_failure(summary, false));
}

TEST(Engine, AnExpectedFailureIsNone) {
  using B = TraceBuilder;
  const auto trace = B().add(B::expecting(B::sized(Op::memalloc, 1, 64), Outcome::oom))
                         .add(B::expecting(B::sized(Op::memalloc, 2, 64), Outcome::any))
                         .add(B::expecting(B::sized(Op::memalloc, 3, 64), Outcome::error))
                         .done();
  FakeStack stack(
      {.refuse = [](std::uint64_t, std::uint64_t) { return std::optional(out_of_memory()); }});

  const auto summary = replay(trace, stack);

  EXPECT_FALSE(found_failure(summary, false));
  EXPECT_EQ(summary.pass.failures, 0u);
}

TEST(Engine, WhatWasNeverToBeServedIsNotAskedForInEarnest) {
  using B = TraceBuilder;
  const auto trace =
      B().alloc(1, 64)
          .add(B::expecting(B::sized(Op::memalloc, 2, ~std::uint64_t{0}), Outcome::oom))
          .alloc(3, 100)
          .free(1)
          .done();
  FakeStack stack({.refuse = [](std::uint64_t n, std::uint64_t) {
    return n > 0 ? std::optional(out_of_memory()) : std::nullopt;
  }});

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.pass.peak_live_bytes, 64u);
  EXPECT_EQ(summary.pass.peak_requested_bytes, 164u);
}

TEST(Engine, WhatTheRecordingRefusedIsAskedForAtItsMoment) {
  using B = TraceBuilder;
  const auto trace = B().alloc(1, 64)
                         .add(B::recorded(B::sized(Op::memalloc, 2, 1000), Outcome::oom))
                         .add(B::recorded(B::sized(Op::memalloc, 3, 500), Outcome::oom))
                         .alloc(4, 100)
                         .done();
  for (const bool refuses : {true, false}) {
    FakeStack stack({.refuse = [=](std::uint64_t n, std::uint64_t) {
      return refuses && (n == 1 || n == 2) ? std::optional(out_of_memory()) : std::nullopt;
    }});

    const auto summary = replay(trace, stack);

    EXPECT_EQ(summary.pass.failures, 0u);
    EXPECT_EQ(summary.refused_again, refuses ? 2u : 0u);
    EXPECT_EQ(summary.pass.peak_requested_bytes, 1064u) << "refused or not";
  }
}

TEST(Engine, ARefusalThatWasRecordedMayBeAskedToBeAFailure) {
  using B = TraceBuilder;
  const auto trace = B().add(B::recorded(B::sized(Op::memalloc, 1, 64), Outcome::oom))
                         .add(B::expecting(B::sized(Op::memalloc, 2, 64), Outcome::oom))
                         .done();
  FakeStack stack(
      {.refuse = [](std::uint64_t, std::uint64_t) { return std::optional(out_of_memory()); }});

  const auto summary = replay(trace, stack, {.refusals_fail = true});

  EXPECT_EQ(summary.pass.failures, 1u) << "what is expected to fail is none";
  ASSERT_TRUE(summary.first_failure);
  EXPECT_EQ(summary.first_failure->id, "1");
}

TEST(Engine, FreesOfWhatWasNeverMadeAreLeftOut) {
  const auto trace = TraceBuilder().alloc(1, 64).free(1).done();
  FakeStack stack(
      {.refuse = [](std::uint64_t, std::uint64_t) { return std::optional(out_of_memory()); }});

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.pass.failures, 1u);
  EXPECT_EQ(summary.pass.frees, 0u);
  EXPECT_EQ(summary.pass.unmade, 1u);
}

TEST(Engine, StopsAtAnOutOfMemoryThatNobodyForetold) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 64).alloc(3, 64).done();
  FakeStack stack({.refuse = [](std::uint64_t n, std::uint64_t) {
    return n == 1 ? std::optional(out_of_memory()) : std::nullopt;
  }});

  const auto summary = replay(trace, stack, {.on_oom = ReplayOptions::OnOom::stop});

  EXPECT_EQ(summary.stopped_at, 1u);
  EXPECT_EQ(summary.pass.events, 2u);
  EXPECT_EQ(summary.pass.leaked, 0u) << "what was still to be freed is not leaked";
}

TEST(Engine, DeclinedOperationsAreCollectedAndAreNoFailures) {
  const auto trace = TraceBuilder()
                         .alloc(1, 64)
                         .export_(1, 1)
                         .open(2, 1, "worker")
                         .close(2, "worker")
                         .free(1)
                         .done();
  FakeStack stack({.declines_ipc = true});

  const auto summary = replay(trace, stack);

  EXPECT_FALSE(found_failure(summary, true));
  ASSERT_EQ(summary.declined.size(), 2u);
  EXPECT_EQ(summary.declined[0].op, Op::get_ipc_handle);
  EXPECT_EQ(summary.declined[0].count, 1u);
  EXPECT_EQ(summary.declined[0].why, "no handles here");
  EXPECT_EQ(summary.declined[1].op, Op::open_ipc_handle);
  EXPECT_EQ(summary.pass.unmade, 1u);
}

TEST(Engine, ADeclinedOperationThatIsExpectedToWorkIsAFailure) {
  using B = TraceBuilder;
  auto exporting = B::of(Op::get_ipc_handle, 1);
  exporting.members.add(trace::Member::handle);
  exporting.handle = trace::Id::of(std::uint64_t{1});
  const auto trace = B().alloc(1, 64).add(B::expecting(exporting, Outcome::ok)).free(1).done();
  FakeStack stack({.declines_ipc = true});

  EXPECT_TRUE(found_failure(replay(trace, stack), false));
}

TEST(Engine, FindsOverlappingMemory) {
  const auto trace = TraceBuilder().alloc(1, 1024).alloc(2, 1024).free(1).free(2).done();
  FakeStack stack({.address = [](std::uint64_t n, std::uint64_t next) {
    return n == 1 ? std::optional(next - 256) : std::nullopt;
  }});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].kind, Violation::Kind::overlap);
  EXPECT_EQ(summary.violations[0].event, 1u);
  EXPECT_EQ(summary.violations[0].line, 3u);
  EXPECT_EQ(
      summary.violations[0].words,
      "2 (1024 bytes at 0x7f0000001300) overlaps 1 (1024 bytes at 0x7f0000001000), which is live");
  EXPECT_TRUE(found_failure(summary, false));
  ASSERT_TRUE(summary.first_failure);
  EXPECT_EQ(summary.first_failure->event, 1u);
}

TEST(Engine, AnAddressMayLiveAgain) {
  const auto trace =
      TraceBuilder().alloc(1, 1024).free(1).alloc(2, 512).alloc(3, 512).free(3).free(2).done();
  FakeStack stack({.address = [](std::uint64_t n, std::uint64_t) {
    return std::optional(FakeDriver::kBase + (n == 2 ? 512 : 0));
  }});

  EXPECT_EQ(replay(trace, stack).violation_count, 0u);
}

TEST(Engine, FindsMisalignedMemory) {
  using B = TraceBuilder;
  auto aligned = B::sized(Op::memalloc, 3, 64);
  aligned.members.add(trace::Member::align);
  aligned.align = 4096;
  auto loose = B::sized(Op::memalloc, 4, 64);
  loose.members.add(trace::Member::align);
  loose.align = 64;
  const auto trace =
      B().alloc(1, 64).alloc(2, 64).add(aligned).add(loose).free(1).free(2).free(3).free(4).done();
  FakeStack stack({.address = [](std::uint64_t n, std::uint64_t) {
    return std::optional(FakeDriver::kBase + 0x10000 * n +
                         (n == 1   ? 64
                          : n == 2 ? 512
                          : n == 3 ? 64
                                   : 0));
  }});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 2u);
  EXPECT_EQ(summary.violations[0].words,
            "2 (64 bytes at 0x7f0000010040) is not at a multiple of 256");
  EXPECT_EQ(summary.violations[1].words,
            "3 (64 bytes at 0x7f0000020200) is not at a multiple of 4096");
}

TEST(Engine, FindsWrongSizesAndNullPointers) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 64).done();
  FakeStack stack({.address =
                       [](std::uint64_t n, std::uint64_t) {
                         return n == 1 ? std::optional<std::uint64_t>(0) : std::nullopt;
                       },
                   .size_added = 1});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 3u);
  EXPECT_EQ(summary.violations[0].kind, Violation::Kind::wrong_size);
  EXPECT_EQ(summary.violations[0].words,
            "1 (64 bytes at 0x7f0000001000) says that it has 65 bytes");
  EXPECT_EQ(summary.violations[1].kind, Violation::Kind::wrong_size);
  EXPECT_EQ(summary.violations[2].words, "2 (64 bytes at 0x0) has the null pointer");
}

TEST(Engine, NothingMayHaveTheNullPointer) {
  const auto trace = TraceBuilder().alloc(1, 0).free(1).done();
  FakeStack stack(
      {.address = [](std::uint64_t, std::uint64_t) { return std::optional<std::uint64_t>(0); }});

  EXPECT_EQ(replay(trace, stack).violation_count, 0u);
}

TEST(Engine, CountsLeaksAndNamesTheBiggest) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 1024).host(3, 256).free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.pass.leaked, 2u);
  EXPECT_EQ(summary.pass.leaked_bytes, 1280u);
  ASSERT_EQ(summary.leaks.size(), 2u);
  EXPECT_EQ(summary.leaks[0].id, "2");
  EXPECT_EQ(summary.leaks[1].id, "3");
  EXPECT_FALSE(found_failure(summary, false));
  EXPECT_TRUE(found_failure(summary, true));
  EXPECT_EQ(stack.drivers[0]->held, 0u) << "the engine frees what is left";
}

TEST(Engine, WhatAResetEndsIsNotLeakedAndLaterFreesAreHarmless) {
  const auto trace = TraceBuilder()
                         .alloc(1, 64)
                         .host(2, 64)
                         .alloc(3, 64)
                         .op(Op::reset)
                         .free(1)
                         .free(2)
                         .alloc(4, 64)
                         .free(4)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.verify = true});

  EXPECT_EQ(summary.pass.leaked, 0u);
  EXPECT_EQ(summary.pass.frees, 3u);
  EXPECT_EQ(summary.pass.peak_live_bytes, 128u);
  EXPECT_FALSE(found_failure(summary, true));
}

TEST(Engine, FindsAFinalizerThatFreesAfterAReset) {
  const auto trace = TraceBuilder().alloc(1, 64).op(Op::reset).free(1).done();
  FakeStack stack({.late_frees_release = true});

  const auto summary = replay(trace, stack);

  ASSERT_GE(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].kind, Violation::Kind::balance);
  EXPECT_EQ(summary.violations[0].words,
            "the free of 1, which a reset had ended, released 64 bytes to the device");
}

TEST(Engine, FindsAManagerWhoseAccountsDoNotBalance) {
  const auto trace = TraceBuilder().in_context(9).alloc(1, 64).free(1).done();
  FakeStack stack({.state_live_added = 8});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].words,
            "all was freed, and the manager of context 9 says that 8 bytes are live");
}

TEST(Engine, VerifyFindsWhoOverwroteWhom) {
  const auto trace = TraceBuilder().alloc(1, 1024).alloc(2, 1024).free(1).free(2).done();
  FakeStack stack({.address = [](std::uint64_t n, std::uint64_t next) {
    return n == 1 ? std::optional(next - 256) : std::nullopt;
  }});

  const auto summary = replay(trace, stack, {.verify = true});

  ASSERT_EQ(summary.violation_count, 2u);
  EXPECT_EQ(summary.violations[1].kind, Violation::Kind::corruption);
  EXPECT_EQ(summary.violations[1].words,
            "1 (1024 bytes at 0x7f0000001000) was changed: byte 768 is 0x62, expected 0xb1; that "
            "is the content of 2 "
            "(1024 bytes at 0x7f0000001300)");
}

TEST(Engine, VerifyFindsChangesAtEitherEndOfBigMemoryAndInHostMemory) {
  const auto trace = TraceBuilder()
                         .alloc(1, 1 << 20)
                         .alloc(2, 10)
                         .host(3, 100)
                         .alloc(4, 8)
                         .free(1)
                         .free(2)
                         .free(3)
                         .done();
  FakeStack stack;
  stack.script.refuse = [&](std::uint64_t n, std::uint64_t) -> std::optional<Error> {
    if (n == 2) {  // the fourth operation spoils what the first two made
      *stack.drivers[0]->at({FakeDriver::kBase + 4096 + (1 << 20) - 1}) = std::byte{0};
      *stack.drivers[0]->at({FakeDriver::kBase + 4096 + (1 << 20) + 9}) = std::byte{0};
    }
    return std::nullopt;
  };

  const auto summary = replay(trace, stack, {.verify = true});

  ASSERT_EQ(summary.violation_count, 2u);
  EXPECT_EQ(summary.violations[0].words,
            "1 (1048576 bytes at 0x7f0000001000) was changed: byte 1048575 is 0x0, expected 0x9e");
  EXPECT_EQ(summary.violations[1].words,
            "2 (10 bytes at 0x7f0000101000) was changed: byte 9 is 0x0, expected 0xf3");
}

TEST(Engine, VerifyDoesNotAccuseAGoodManagerAndCostsNoSimulatedTime) {
  TraceBuilder builder;
  for (std::uint64_t id = 0; id < 200; ++id) {
    builder.alloc(id, 1 + id * 397).host(1000 + id, 1 + id * 17, id % 2 == 0);
    if (id >= 10) builder.free(id - 10).free(1000 + id - 10);
  }
  const auto trace = builder.done();
  FakeStack stack, plain;

  const auto verified = replay(trace, stack, {.verify = true});

  EXPECT_EQ(verified.violation_count, 0u);
  EXPECT_GT(stack.drivers[0]->calls, 400u);
  EXPECT_EQ(verified.pass.elapsed_ns, replay(trace, plain).pass.elapsed_ns);
}

TEST(Engine, ExchangesContentWithASecondProcessAtTheHandlesOffset) {
  const auto trace = TraceBuilder()
                         .alloc(1, 10000)
                         .export_(1, 7)
                         .open(2, 7, "worker")
                         .open(3, 7, "worker", 2)
                         .close(3, "worker")
                         .close(2, "worker")
                         .open(4, 7, "other")
                         .close(4, "other")
                         .free(1)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.verify = true});

  EXPECT_EQ(summary.violation_count, 0u) << summary.violations[0].words;
  EXPECT_EQ(stack.peers_started, 2);
  EXPECT_EQ(summary.pass.unmade, 0u);
  EXPECT_FALSE(found_failure(summary, true));
}

TEST(Engine, FindsAHandleWithAWrongOffset) {
  const auto trace = TraceBuilder()
                         .alloc(1, 10000)
                         .export_(1, 7)
                         .open(2, 7, "worker")
                         .close(2, "worker")
                         .free(1)
                         .done();
  FakeStack stack({.ipc_offset_added = 256});

  const auto summary = replay(trace, stack);

  ASSERT_GE(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].kind, Violation::Kind::wrong_address);
  EXPECT_EQ(summary.violations[0].words.substr(0, 60),
            "the other process finds other content in 1 (10000 bytes at 0");
}

TEST(Engine, OpeningAHandleInTheProcessThatExportedItFailsAsNumbaSays) {
  const auto trace = TraceBuilder().alloc(1, 64).export_(1, 7).open(2, 7, "").free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  ASSERT_TRUE(summary.first_failure);
  EXPECT_EQ(summary.first_failure->error, "opening IpcHandle from original process");
}

TEST(Engine, AnOpeningThatIsNeverClosedIsLeaked) {
  const auto trace = TraceBuilder().alloc(1, 64).export_(1, 7).open(2, 7, "worker").free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.pass.leaked, 1u);
  EXPECT_EQ(summary.leaks[0].id, "2");
}

TEST(Engine, PutsFlushesDownToTheOperationThatCausedThemAndComparesThemWithTheRecording) {
  const auto trace = TraceBuilder()
                         .alloc(1, 10)
                         .alloc(2, 20)
                         .alloc(3, 30)
                         .free(1)
                         .free(2)
                         .free(3)
                         .flush(3, 60)
                         .alloc(4, 40)
                         .free(4)
                         .op(Op::reset)
                         .flush(1, 41)
                         .done();
  FakeStack stack({.flush_after = 2});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.flushes.size(), 2u);
  EXPECT_EQ(summary.flushes[0],
            (log::Flush{.event = 5, .seq = summary.flushes[0].seq, .count = 3, .bytes = 60}));
  EXPECT_EQ(summary.flushes[1],
            (log::Flush{.event = 9, .seq = summary.flushes[1].seq, .count = 1, .bytes = 40}));
  ASSERT_TRUE(summary.recorded_flushes);
  EXPECT_EQ(summary.recorded_flushes->recorded, 2u);
  EXPECT_EQ(summary.recorded_flushes->as_recorded, 1u);
  EXPECT_EQ(summary.recorded_flushes->unrecorded, 0u);
  EXPECT_EQ(summary.recorded_flushes->first_difference,
            "recorded at event 9: 1 frees, 41 bytes; replayed with 1 frees, 40 bytes");
  EXPECT_EQ(summary.pass.events, 9u) << "backing events are not replayed";
}

TEST(Engine, DeferCleanupNests) {
  const auto trace = TraceBuilder()
                         .alloc(1, 10)
                         .alloc(2, 20)
                         .op(Op::defer_cleanup)
                         .op(Op::defer_cleanup)
                         .free(1)
                         .op(Op::end_defer_cleanup)
                         .free(2)
                         .op(Op::end_defer_cleanup)
                         .alloc(3, 1)
                         .free(3)
                         .done();
  FakeStack stack({.flush_after = 1});

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.flushes.size(), 1u);
  EXPECT_EQ(summary.flushes[0].event, 9u);
  EXPECT_EQ(summary.flushes[0].count, 3u);
}

TEST(Engine, RepeatsWithoutAResetAndGivesAPassForEach) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 128).free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.repeat = 3, .verify = true});

  ASSERT_EQ(summary.repeats.size(), 3u);
  for (const auto& pass : summary.repeats) {
    EXPECT_EQ(pass.leaked, 1u);
    EXPECT_EQ(pass.peak_live_bytes, 192u);
    EXPECT_EQ(pass.elapsed_ns, 250u);
  }
  EXPECT_EQ(summary.pass.allocs, 2u);
  EXPECT_EQ(stack.managers_made, 1);
  EXPECT_EQ(summary.violation_count, 0u);
}

TEST(Engine, StopsBeforeAnEventAndShowsTheState) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 128).free(1).free(2).done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.stop_at = 2});

  EXPECT_EQ(summary.stopped_at, 2u);
  EXPECT_EQ(summary.pass.events, 2u);
  ASSERT_TRUE(summary.stop_state);
  EXPECT_EQ(summary.stop_state->event, 2u);
  EXPECT_EQ(summary.stop_state->op, Op::free);
  EXPECT_EQ(summary.stop_state->live_bytes, 192u);
  EXPECT_EQ(summary.stop_state->holders.size(), 2u);
  EXPECT_FALSE(summary.first_failure);
  EXPECT_FALSE(found_failure(summary, true));
}

TEST(Engine, EndsAfterTheCurrentEventWhenInterrupted) {
  const auto trace = TraceBuilder().alloc(1, 64).alloc(2, 64).alloc(3, 64).done();
  FakeStack stack;
  std::atomic<bool> interrupted{false};
  stack.script.refuse = [&](std::uint64_t n, std::uint64_t) -> std::optional<Error> {
    interrupted = n == 1;
    return std::nullopt;
  };

  const auto summary = replay(trace, stack, {.interrupted = &interrupted});

  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.pass.events, 2u);
  EXPECT_EQ(summary.pass.leaked, 0u);
}

TEST(Engine, MakesAContextForEachThatTheTraceNames) {
  const auto trace = TraceBuilder()
                         .in_context(1, 0)
                         .alloc(1, 64)
                         .in_context(2, 1)
                         .alloc(2, 64)
                         .in_context(1, 0)
                         .free(1)
                         .in_context(2, 1)
                         .free(2)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(stack.managers_made, 2);
  EXPECT_EQ(stack.drivers[1]->device_ordinal(), 1);
  EXPECT_EQ(summary.violation_count, 0u) << "two devices may hand out one address";
}

TEST(Engine, AContextThatIsDestroyedEndsItsMemoryAndMayBeMadeAgain) {
  const auto trace = TraceBuilder()
                         .in_context(1)
                         .op(Op::context_create)
                         .alloc(1, 64)
                         .op(Op::context_destroy)
                         .op(Op::context_create)
                         .alloc(2, 64)
                         .free(2)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(stack.managers_made, 2);
  EXPECT_EQ(summary.pass.leaked, 0u);
  EXPECT_FALSE(found_failure(summary, true));
}

TEST(Engine, GivesEachStreamAHandleOfItsOwn) {
  const auto trace = TraceBuilder()
                         .alloc(1, 64)
                         .on_stream(3)
                         .alloc(2, 64)
                         .on_stream(4)
                         .alloc(3, 64)
                         .on_stream(3)
                         .alloc(4, 64)
                         .done();
  FakeStack stack;

  replay(trace, stack);

  const auto& streams = stack.seen.streams;
  ASSERT_EQ(streams.size(), 4u);
  EXPECT_EQ(streams[0].value, 0u);
  EXPECT_NE(streams[1].value, 0u);
  EXPECT_NE(streams[2], streams[1]);
  EXPECT_EQ(streams[3], streams[1]);
}

TEST(Engine, EachThreadHasAPerThreadStreamOfItsOwn) {
  const auto hazards_of = [](std::uint64_t second_thread, std::vector<StreamHandle>& streams) {
    FakeStack stack({.address = [](std::uint64_t, std::uint64_t) { return FakeDriver::kBase; }});
    const auto trace = TraceBuilder()
                           .on_per_thread()
                           .on_thread(1)
                           .alloc(1, 256)
                           .free(1)
                           .on_thread(second_thread)
                           .alloc(2, 256)
                           .free(2)
                           .done();
    const auto summary = Engine(trace, stack, {}).run();
    EXPECT_TRUE(summary);
    streams = stack.seen.streams;
    return summary ? summary->pass.hazards : ~std::uint64_t{0};
  };
  std::vector<StreamHandle> streams;

  EXPECT_EQ(hazards_of(1, streams), 0u);
  EXPECT_EQ(streams, (std::vector{kPerThreadStream, kPerThreadStream}));
  EXPECT_EQ(hazards_of(2, streams), 1u) << "nothing orders one thread's after the other's";
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0], kPerThreadStream);
  EXPECT_NE(streams[1], kPerThreadStream);
}

TEST(Engine, WorkOnAnotherThreadsPerThreadStreamIsWaitedForBeforeAFree) {
  FakeStack stack({.address = [](std::uint64_t, std::uint64_t) { return FakeDriver::kBase; }});
  const auto trace = TraceBuilder()
                         .on_per_thread()
                         .on_thread(1)
                         .alloc(1, 256)
                         .on_thread(2)
                         .use(1)
                         .on_thread(1)
                         .free(1)
                         .alloc(2, 256)
                         .free(2)
                         .done();

  const auto summary = Engine(trace, stack, {}).run();

  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->pass.hazards, 0u);
}

TEST(Engine, PinsOfOneBufferLieAtTheirOffsetsInIt) {
  using B = TraceBuilder;
  const auto pin = [](std::uint64_t id, std::uint64_t size, std::uint64_t offset,
                      std::uint32_t page_offset) {
    auto operation = B::sized(Op::mempin, id, size);
    operation.members.add(trace::Member::buffer);
    operation.members.add(trace::Member::offset);
    operation.members.add(trace::Member::page_offset);
    operation.buffer = trace::Id::of(std::uint64_t{1});
    operation.offset = offset;
    operation.page_offset = page_offset;
    return operation;
  };
  auto alone = B::sized(Op::mempin, 3, 100);
  alone.members.add(trace::Member::page_offset);
  alone.page_offset = 48;
  const auto trace = B().add(pin(1, 4096, 0, 64))
                         .add(pin(2, 4096, 8192, 64))
                         .add(alone)
                         .free(1)
                         .free(2)
                         .free(3)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.verify = true});

  const auto& pinned = stack.seen.pinned;
  ASSERT_EQ(pinned.size(), 3u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned[0].pointer) % 4096, 64u);
  EXPECT_EQ(pinned[1].pointer - pinned[0].pointer, 8192);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned[2].pointer) % 4096, 48u);
  EXPECT_EQ(summary.violation_count, 0u);
}

TEST(Engine, LooksAtWhatMemoryInfoSays) {
  trace::Operation info;
  info.op = Op::get_memory_info;
  info.members.add(trace::Member::expect);
  info.expect.free_at_least = FakeDriver::kSize;
  const auto trace = TraceBuilder().add(info).alloc(1, 64).add(info).free(1).done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  ASSERT_EQ(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].event, 2u);
  EXPECT_EQ(
      summary.violations[0].words,
      "get_memory_info says that 8388544 bytes are free, expected 8388608 to 18446744073709551615");
}

TEST(Engine, ServesWhatWasAliveBeforeTheRecordingBeforeTheClockStarts) {
  using B = TraceBuilder;
  auto before = B::sized(Op::memalloc, 1, 64);
  before.members.add(trace::Member::preexisting);
  before.preexisting = true;
  const auto trace = B().add(before).alloc(2, 64).free(1).free(2).done();
  FakeStack stack;

  const auto summary = replay(trace, stack, {.latency = true});

  EXPECT_EQ(summary.pass.elapsed_ns, 200u);
  EXPECT_EQ(summary.alloc_latency->count, 1u);
  EXPECT_EQ(summary.pass.allocs, 2u);
}

trace::Operation of_pool(Op op, std::uint64_t pool, std::optional<std::uint64_t> keep = {}) {
  trace::Operation operation;
  operation.op = op;
  operation.members = trace::Members(trace::Member::pool);
  operation.pool = trace::Id::of(pool);
  if (keep) {
    operation.members.add(trace::Member::keep);
    operation.keep = *keep;
  }
  return operation;
}

TEST(Engine, TrimsTheManagerWhereATracesOnlyPoolIs) {
  const auto trace = TraceBuilder()
                         .add(of_pool(Op::pool_create, 1))
                         .alloc(1, 64)
                         .free(1)
                         .add(of_pool(Op::pool_trim, 1, 4096))
                         .add(of_pool(Op::pool_trim, 1))
                         .add(of_pool(Op::pool_destroy, 1))
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(stack.seen.trims, (std::vector<std::uint64_t>{4096, 0, 0}));
  EXPECT_EQ(summary.skipped, 1u);
  ASSERT_EQ(summary.notes.size(), 1u);
  EXPECT_EQ(summary.notes[0], "1 operations were not carried out: pool_create");
}

TEST(Engine, NamesTheOperationsThatItDoesNotCarryOut) {
  const auto trace = TraceBuilder()
                         .add(of_pool(Op::pool_trim, 1))
                         .add(of_pool(Op::pool_trim, 2))
                         .alloc(1, 64)
                         .free(1)
                         .done();
  FakeStack stack;

  const auto summary = replay(trace, stack);

  EXPECT_EQ(summary.skipped, 2u);
  ASSERT_EQ(summary.notes.size(), 1u);
  EXPECT_EQ(summary.notes[0], "2 operations were not carried out: pool_trim");
}

TEST(Engine, ASecondProcessThatDiesEndsTheRunAndIsNotPutDownToTheManager) {
  const auto trace =
      TraceBuilder().alloc(1, 64).export_(1, 7).open(2, 7, "other").close(2, "other").done();
  FakeStack stack;
  stack.peer_dies = true;

  const auto summary = Engine(trace, stack, {}).run();

  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Errc::io_error);
}

TEST(Engine, WithoutAContextThereIsNothingToReport) {
  const auto trace = TraceBuilder().alloc(1, 64).done();
  FakeStack stack;
  stack.refuses_contexts = true;

  const auto summary = Engine(trace, stack, {}).run();

  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Errc::no_device);
}

TEST(Engine, TellsOfItsProgressUpToTheEnd) {
  TraceBuilder builder;
  for (std::uint64_t id = 0; id < 3000; ++id) builder.alloc(id, 64).free(id);
  const auto trace = builder.done();
  FakeStack stack(
      {.address = [](std::uint64_t, std::uint64_t) { return std::optional(FakeDriver::kBase); }});
  std::uint64_t last = 0;

  replay(trace, stack, {.repeat = 2, .progress = [&](std::uint64_t done, std::uint64_t total) {
                          EXPECT_GT(done, last);
                          EXPECT_EQ(total, 12000u);
                          last = done;
                        }});

  EXPECT_EQ(last, 12000u);
}

/// Keeps what it is told.
class Records final : public log::RecordSink {
 public:
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    records.push_back(record);
    states.push_back(gauges);
  }
  std::vector<log::Record> records;
  std::vector<log::Gauges> states;
};

TEST(Engine, MakesARecordOfEachOperationAndOfEachAllocationThatAResetEnds) {
  const auto trace =
      TraceBuilder().on_thread(7).alloc(1, 64).alloc(2, 32).free(1).op(Op::reset).free(2).done();
  FakeStack stack;
  Records records;

  ASSERT_TRUE(Engine(trace, stack, {}, &records).run());

  ASSERT_EQ(records.records.size(), 6u);
  const auto& allocated = records.records[0];
  EXPECT_EQ(allocated.seq, 0u);
  EXPECT_EQ(allocated.begin_ns, 0u);
  EXPECT_EQ(allocated.end_ns, 100u);
  EXPECT_EQ(allocated.pointer, 0x7f0000001000u);
  EXPECT_EQ(allocated.size, 64u);
  EXPECT_EQ(records.states[0].live_bytes, 64u);
  EXPECT_EQ(records.states[0].reserved_bytes, 64u);
  EXPECT_EQ(records.states[0].free_bytes, FakeDriver::kSize - 64);
  EXPECT_EQ(records.states[0].total_bytes, FakeDriver::kSize);
  EXPECT_EQ(records.records[2].op, Op::free);
  EXPECT_EQ(records.records[2].freed_kind, Op::memalloc);
  const auto& ended = records.records[3];
  EXPECT_EQ(ended.op, Op::reset);
  EXPECT_EQ(ended.id, 1u);
  EXPECT_EQ(ended.pointer, 0x7f0000001100u);
  EXPECT_EQ(records.records[4].id, log::kNoId);
  EXPECT_TRUE(records.records[5].late);
}

}  // namespace
}  // namespace emm::replay
