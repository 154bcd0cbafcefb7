#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "conformance/model/comparison.hpp"
#include "conformance/model/contract_model.hpp"
#include "driver/call.hpp"
#include "wrong_rules.hpp"

namespace emm::model {
namespace {

// The checks that the clauses themselves describe, on the model; then proof that the comparison can
// fail.

constexpr DeviceSetup kRoomy{.total = 1'000, .capacity = 100'000, .host_capacity = 100'000};

Operation memalloc(int slot, std::uint64_t size, Faults faults = {}) {
  return {.ask = Ask::memalloc, .slot = slot, .size = size, .faults = faults};
}
Operation memhostalloc(int slot, std::uint64_t size, bool mapped, Faults faults = {}) {
  return {.ask = Ask::memhostalloc,
          .slot = slot,
          .size = size,
          .host = {.mapped = mapped},
          .faults = faults};
}
Operation mempin(int slot, bool mapped, Faults faults = {}) {
  return {
      .ask = Ask::mempin, .slot = slot, .size = 64, .host = {.mapped = mapped}, .faults = faults};
}
Operation drop(int slot) { return {.ask = Ask::drop, .slot = slot}; }
Operation plain(Ask ask) { return {.ask = ask}; }

Trail play_on_model(std::vector<Operation> operations, const Rules& rules,
                    const DeviceSetup& setup = kRoomy) {
  Sequence sequence{.setup = setup, .slots = 64, .operations = std::move(operations)};
  Trail trail;
  runner_of(rules)(sequence, trail);
  return trail;
}

std::vector<Call> calls_of(const Trail& trail, std::size_t step) {
  std::vector<Call> calls;
  for (auto i = step == 0 ? 0 : trail.steps[step - 1].calls_end; i < trail.steps[step].calls_end;
       ++i) {
    calls.push_back(trail.calls[i].call);
  }
  return calls;
}

const Rules kBoth[] = {Rules::standard(), Rules::numba()};

TEST(ContractModel, KeepsTenFreesAndMakesElevenOldestFirst) {
  for (const auto& rules : kBoth) {
    std::vector<Operation> operations{plain(Ask::initialize)};
    for (int slot = 0; slot < 11; ++slot) operations.push_back(memalloc(slot, 1));
    for (int slot = 0; slot < 11; ++slot) operations.push_back(drop(slot));

    const auto trail = play_on_model(operations, rules);

    EXPECT_EQ(trail.steps[21].pending, (Pending{10, 10}));
    EXPECT_EQ(trail.steps[22].pending, (Pending{0, 0}));
    ASSERT_EQ(trail.flushes.size(), 1u);
    EXPECT_EQ(trail.flushes[0], (FlushRecord{22, 11, 11}));
    for (std::size_t i = 0; i < 11; ++i) {
      EXPECT_EQ(trail.calls[12 + i].argument, trail.steps[1 + i].outcome.address);
    }
  }
}

TEST(ContractModel, FlushesAboveAFifthOfCapacityRoundedDown) {
  for (const auto& rules : kBoth) {
    auto setup = kRoomy;
    setup.total = 999;
    const std::vector<Operation> operations{plain(Ask::initialize), memalloc(0, 199), drop(0),
                                            memalloc(1, 1), drop(1)};

    const auto trail = play_on_model(operations, rules, setup);

    EXPECT_EQ(trail.steps[2].pending, (Pending{1, 199}));
    EXPECT_EQ(trail.steps[4].pending, (Pending{0, 0}));
  }
}

TEST(ContractModel, FlushesAnySizedFreeWhileCapacityIsUnset) {
  for (const auto& rules : kBoth) {
    const auto trail = play_on_model({memalloc(0, 1), drop(0)}, rules);

    EXPECT_EQ(calls_of(trail, 1), (std::vector{Call::mem_free}));
  }
}

TEST(ContractModel, FlushesOnceAndRetriesOnceWhenMemoryIsOut) {
  for (const auto& rules : kBoth) {
    const Faults both{
        .mask = 0b1001, .first = 2, .later = 2};  // the allocation, two frees, the retry
    const auto trail = play_on_model({plain(Ask::initialize), memalloc(0, 10), memalloc(1, 10),
                                      drop(0), drop(1), memalloc(2, 10, both)},
                                     rules);

    EXPECT_EQ(calls_of(trail, 5),
              (std::vector{Call::mem_alloc, Call::mem_free, Call::mem_free, Call::mem_alloc}));
    EXPECT_EQ(trail.steps[5].outcome.code, 2);
    EXPECT_EQ(trail.steps[5].pending, (Pending{0, 0}));
  }
}

TEST(ContractModel, RetriesWithoutAFlushWhileDeferred) {
  for (const auto& rules : kBoth) {
    const auto trail =
        play_on_model({plain(Ask::initialize), plain(Ask::defer_cleanup), memalloc(0, 10), drop(0),
                       memalloc(1, 10, {.mask = 1, .first = 2})},
                      rules);

    EXPECT_EQ(calls_of(trail, 4), (std::vector{Call::mem_alloc, Call::mem_alloc}));
    EXPECT_EQ(trail.steps[4].outcome.code, 0);
    EXPECT_EQ(trail.steps[4].pending, (Pending{1, 10}));
  }
}

TEST(ContractModel, RetriesNoOtherError) {
  for (const auto& rules : kBoth) {
    const auto trail = play_on_model({plain(Ask::initialize), memalloc(0, 10), drop(0),
                                      memalloc(1, 10, {.mask = 1, .first = 1})},
                                     rules);

    EXPECT_EQ(calls_of(trail, 3), (std::vector{Call::mem_alloc}));
    EXPECT_EQ(trail.steps[3].pending, (Pending{1, 10}));
  }
}

TEST(ContractModel, RetriesUnmappedHostMemoryUnlessAsNumba) {
  const std::vector<Operation> operations{memhostalloc(0, 10, false, {.mask = 1, .first = 2})};

  EXPECT_EQ(calls_of(play_on_model(operations, Rules::standard()), 0).size(), 2u);
  EXPECT_EQ(calls_of(play_on_model(operations, Rules::numba()), 0).size(), 1u);
}

TEST(ContractModel, CountsPinnedBytesUnlessAsNumba) {
  const std::vector<Operation> operations{plain(Ask::initialize), memhostalloc(0, 64, false),
                                          drop(0), memhostalloc(1, 64, true), drop(1)};

  EXPECT_EQ(play_on_model(operations, Rules::standard()).steps[4].pending, (Pending{2, 128}));
  EXPECT_EQ(play_on_model(operations, Rules::numba()).steps[4].pending, (Pending{2, 64}));
}

TEST(ContractModel, ReleasesWhatCannotBeMapped) {
  for (const auto& rules : kBoth) {
    const Faults mapping{.mask = 0b10, .first = 0, .later = 700};

    const auto trail =
        play_on_model({memhostalloc(0, 10, true, mapping), mempin(1, true, mapping)}, rules);

    EXPECT_EQ(calls_of(trail, 0).back(), Call::mem_free_host);
    EXPECT_EQ(calls_of(trail, 1).back(), Call::mem_host_unregister);
    EXPECT_EQ(trail.steps[0].outcome.code, 700);
    EXPECT_EQ(trail.steps[1].outcome.code, 700);
  }
}

TEST(ContractModel, UnpinsAtOnceAlsoWhileDeferred) {
  for (const auto& rules : kBoth) {
    const auto trail = play_on_model(
        {plain(Ask::defer_cleanup), mempin(0, false), drop(0), mempin(1, true), drop(1)}, rules);

    EXPECT_EQ(calls_of(trail, 2), (std::vector{Call::mem_host_unregister}));
    EXPECT_EQ(calls_of(trail, 4), (std::vector{Call::mem_host_unregister}));
  }
}

TEST(ContractModel, GoesOnPastAFailedFreeUnlessAsNumba) {
  const std::vector<Operation> operations{
      plain(Ask::initialize),
      memalloc(0, 10),
      memalloc(1, 20),
      memalloc(2, 30),
      drop(0),
      drop(1),
      drop(2),
      {.ask = Ask::flush, .faults = {.mask = 0b10, .first = 0, .later = 700}},
      plain(Ask::flush)};

  const auto standard = play_on_model(operations, Rules::standard());
  const auto numba = play_on_model(operations, Rules::numba());

  EXPECT_EQ(standard.steps[7].outcome.code, 700);
  EXPECT_EQ(standard.steps[7].pending, (Pending{0, 0}));
  EXPECT_EQ(numba.steps[7].outcome.code, 700);
  EXPECT_EQ(numba.steps[7].pending, (Pending{1, 60}));
  EXPECT_EQ(calls_of(numba, 8), (std::vector{Call::mem_free}));
}

TEST(ContractModel, LeavesTheBacklogWhenDeferralEnds) {
  for (const auto& rules : kBoth) {
    std::vector<Operation> operations{plain(Ask::initialize), plain(Ask::defer_cleanup),
                                      plain(Ask::defer_cleanup)};
    for (int slot = 0; slot < 16; ++slot) operations.push_back(memalloc(slot, 1));
    for (int slot = 0; slot < 15; ++slot) operations.push_back(drop(slot));
    operations.push_back(plain(Ask::end_defer_cleanup));
    operations.push_back(plain(Ask::end_defer_cleanup));
    operations.push_back(drop(15));

    const auto trail = play_on_model(operations, rules);

    EXPECT_EQ(trail.steps[35].pending, (Pending{15, 15}));
    ASSERT_EQ(trail.flushes.size(), 1u);
    EXPECT_EQ(trail.flushes[0], (FlushRecord{36, 16, 16}));
  }
}

TEST(ContractModel, ResetsWhatIsPendingThenTheRecordsInTheirOrder) {
  const std::vector<Operation> operations{plain(Ask::initialize),
                                          memalloc(0, 1),
                                          memhostalloc(1, 1, false),
                                          memhostalloc(2, 1, true),
                                          mempin(3, false),
                                          memalloc(4, 1),
                                          drop(4),
                                          plain(Ask::reset),
                                          drop(0),
                                          {.ask = Ask::free, .slot = 2}};

  const auto standard = play_on_model(operations, Rules::standard());
  const auto numba = play_on_model(operations, Rules::numba());

  EXPECT_EQ(calls_of(standard, 7),
            (std::vector{Call::mem_host_unregister, Call::mem_free, Call::mem_free,
                         Call::mem_free_host, Call::mem_free_host}));
  EXPECT_EQ(calls_of(numba, 7), (std::vector{Call::mem_free, Call::mem_free, Call::mem_free_host}));
  EXPECT_EQ(standard.steps[7].outcome.alive, 0u);
  EXPECT_EQ(numba.steps[7].outcome.alive, 2u);
  for (const auto* trail : {&standard, &numba}) {
    EXPECT_TRUE(calls_of(*trail, 8).empty());
    EXPECT_EQ(trail->steps[9].outcome.code, kDeadPointer);
  }
}

TEST(ContractModel, QueuesButFreesNothingWhenResetWhileDeferred) {
  for (const auto& rules : kBoth) {
    const auto trail =
        play_on_model({memalloc(0, 5), plain(Ask::defer_cleanup), plain(Ask::reset)}, rules);

    EXPECT_TRUE(calls_of(trail, 2).empty());
    EXPECT_EQ(trail.steps[2].pending, (Pending{1, 5}));
  }
}

TEST(ContractModel, AsksForTheCapacityOnceUnlessNumbaIsToldZero) {
  const std::vector<Operation> operations{plain(Ask::initialize), plain(Ask::initialize)};
  auto zero = kRoomy;
  zero.total = 0;

  EXPECT_EQ(play_on_model(operations, Rules::standard()).calls.size(), 1u);
  EXPECT_EQ(play_on_model(operations, Rules::numba()).calls.size(), 1u);
  EXPECT_EQ(play_on_model(operations, Rules::standard(), zero).calls.size(), 1u);
  EXPECT_EQ(play_on_model(operations, Rules::numba(), zero).calls.size(), 2u);
}

TEST(ContractModel, FreesInOneFlushWhatIsDroppedInsideIt) {
  for (const auto& rules : kBoth) {
    const auto trail = play_on_model({plain(Ask::initialize),
                                      memalloc(0, 1),
                                      memalloc(1, 1),
                                      memalloc(2, 1),
                                      drop(0),
                                      drop(1),
                                      {.ask = Ask::flush, .nested = 2}},
                                     rules);

    EXPECT_EQ(calls_of(trail, 6).size(), 3u);
    EXPECT_EQ(trail.steps[6].pending, (Pending{0, 0}));
  }
}

TEST(Comparison, MeetsEveryWrongRuleWithinTenThousandSequences) {
  for (const auto& right : kBoth) {
    for (const auto& wrong : kWrongRules) {
      auto rules = right;
      wrong.break_it(rules);

      const auto mismatch = find_mismatch(runner_of(right), runner_of(rules), 1, 10'000);

      ASSERT_TRUE(mismatch) << wrong.what;
      EXPECT_LE(mismatch->shortest.operations.size(), 40u) << wrong.what << "\n" << mismatch->story;
    }
  }
}

TEST(Comparison, FindsNoMismatchOfAModelWithItself) {
  for (const auto& rules : kBoth) {
    const auto mismatch = find_mismatch(runner_of(rules), runner_of(rules), 1, 1'000);

    EXPECT_FALSE(mismatch) << mismatch->story;
  }
}

TEST(Comparison, ShrinksToTheOperationsThatMatter) {
  auto rules = Rules::standard();
  rules.unpin_is_queued = true;

  const auto mismatch = find_mismatch(runner_of(Rules::standard()), runner_of(rules), 1, 10'000);

  ASSERT_TRUE(mismatch);
  ASSERT_EQ(mismatch->shortest.operations.size(), 1u) << mismatch->story;
  EXPECT_EQ(mismatch->shortest.operations[0].ask, Ask::mempin) << "the end of the sequence unpins";
  EXPECT_NE(mismatch->story.find("seed "), std::string::npos);
}

// What the sequences reach, so that a comparison that finds nothing has looked.
TEST(Generator, ReachesEveryCornerOften) {
  std::size_t by_count = 0, by_bytes = 0, at_the_limit = 0, retried = 0, retried_deferred = 0,
              reset_with_memory = 0;
  std::size_t nested = 0, failed_frees = 0, dead = 0, longest = 0, shortest = 1'000;
  Trail trail;
  const auto run = runner_of(Rules::numba());
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    const auto sequence = generate(seed);
    longest = std::max(longest, sequence.operations.size());
    shortest = std::min(shortest, sequence.operations.size());
    trail.clear();
    run(sequence, trail);
    std::size_t calls = 0, guards = 0;
    for (std::size_t i = 0; i < sequence.operations.size(); ++i) {
      const auto& operation = sequence.operations[i];
      const auto& step = trail.steps[i];
      const auto made = step.calls_end - calls;
      if (operation.ask == Ask::defer_cleanup) guards++;
      if (operation.ask == Ask::end_defer_cleanup && guards > 0) guards--;
      if (operation.ask == Ask::memalloc && made > 1) (guards > 0 ? retried_deferred : retried)++;
      if (operation.ask == Ask::reset && made > 0) reset_with_memory++;
      if (operation.nested != kNoSlot && made > 1) nested++;
      if (step.outcome.code == kDeadPointer) dead++;
      const auto limit =
          static_cast<std::uint64_t>(static_cast<double>(sequence.setup.total) * 0.2);
      if (limit != 0 && step.pending.bytes == limit) at_the_limit++;
      for (; calls < step.calls_end; ++calls) {
        const auto& call = trail.calls[calls];
        if (call.call == Call::mem_free && call.result != 0) failed_frees++;
      }
    }
    for (const auto& flush : trail.flushes) {
      if (flush.operation >= sequence.operations.size() ||
          sequence.operations[flush.operation].ask != Ask::drop)
        continue;
      (flush.count > 10 ? by_count : by_bytes)++;
    }
  }

  EXPECT_LE(longest, 200u);
  EXPECT_GE(shortest, 10u);
  EXPECT_GE(by_count, 100u);
  EXPECT_GE(by_bytes, 100u);
  EXPECT_GE(at_the_limit, 100u);
  EXPECT_GE(retried, 100u);
  EXPECT_GE(retried_deferred, 100u);
  EXPECT_GE(reset_with_memory, 100u);
  EXPECT_GE(nested, 100u);
  EXPECT_GE(failed_frees, 100u);
  EXPECT_GE(dead, 100u);
}

}  // namespace
}  // namespace emm::model
