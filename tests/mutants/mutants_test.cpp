#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "../stream_order/stream_pool.hpp"
#include "conformance/suite.hpp"
#include "further_mutants.hpp"
#include "operators.hpp"
#include "strangers.hpp"

namespace emm::mutants {
namespace {

using namespace emm::conformance;

TEST(Mutants, EveryClauseHasOne) {
  std::set<std::string_view> broken;
  for (const auto& mutant : all_mutants()) broken.insert(mutant.clause);
  for (const auto* clause : select({})) {
    // One that crashes is judged in a process of its own: tests/plugin, tests/golden.
    if (clause->id == "abi/harmless") continue;
    EXPECT_EQ(broken.count(clause->id), 1u) << clause->id << " has no mutant that breaks it";
  }
}

TEST(Mutants, EachWrongManagerIsCaughtByItsClause) {
  for (const auto& mutant : all_mutants()) {
    SCOPED_TRACE(std::string(mutant.clause) + ", " + std::string(mutant.over) + ": " +
                 std::string(mutant.wrong));
#if defined(EMM_ADDRESS_SANITIZER) || defined(EMM_THREAD_SANITIZER)
    if (mutant.clause == "accounts/host_heap") continue;  // A sanitizer's heap is not counted.
#endif
    const auto subject = subject_of(mutant);

    const auto verdict = judge(*find_clause(mutant.clause), subject);

    EXPECT_EQ(verdict.kind, Verdict::Kind::fail) << verdict.words;
  }
}

// A sanitizer has seen each clause pass and fail by now, and what follows asks all of them of each
// manager.
#ifndef EMM_ADDRESS_SANITIZER
TEST(Mutants, NoClauseFailsOnARightOne) {
  for (const auto& right : right_managers()) {
    SCOPED_TRACE(std::string(right.over) + ": " + std::string(right.wrong));

    const auto report = run_suite(subject_of(right), {});

    EXPECT_EQ(report.count(Verdict::Kind::fail), 0u) << to_text(report);
  }
}

TEST(Mutants, EachStrangerIsCaughtBySomeClause) {
  // The clause that caught the last one is asked first about the next: a whole suite takes seconds.
  auto clauses = select({});
  for (const auto& stranger : all_strangers()) {
    const auto subject = subject_of(stranger);

    const auto* const by = first_that_fails(subject, clauses);

    EXPECT_NE(by, nullptr) << stranger.wrong << ", over " << stranger.over;
    const auto at = std::find(clauses.begin(), clauses.end(), by);
    if (at != clauses.end()) std::rotate(clauses.begin(), at, at + 1);
  }
}
#endif

/// A small pool in the order of streams, which is too hasty in one way, or in none.
Subject hasty(stream_order::Haste haste) {
  Subject subject{.manager =
                      std::string(stream_order::kHasteNames[static_cast<std::size_t>(haste)])};
  subject.factory = {
      .name = subject.manager,
      .make = [haste](const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
        return std::make_unique<stream_order::StreamPool>(*context.driver, haste);
      }};
  return subject;
}

TEST(Hasty, ManagersAreCaughtByTheClauseOfStreamOrder) {
  using stream_order::Haste;
  for (const auto haste :
       {Haste::no_event, Haste::wrong_stream, Haste::event_too_early, Haste::unmap_without_order,
        Haste::cross_thread_free, Haste::async_free_without_order, Haste::other_address}) {
    const auto subject = hasty(haste);

    EXPECT_EQ(judge(*find_clause("stream/hazards"), subject).kind, Verdict::Kind::fail)
        << subject.manager;
  }
}

TEST(Hasty, NotWhereOneWaitsAsItShould) {
  for (std::uint64_t seed = 0; seed < 1'000; seed += 100) {
    auto subject = hasty(stream_order::Haste::none);
    subject.seed = seed;

    const auto verdict = judge(*find_clause("stream/hazards"), subject);

    EXPECT_EQ(verdict.kind, Verdict::Kind::pass)
        << "seed " << seed << ": " << verdict.words << ": " << verdict.seen;
  }
}

}  // namespace
}  // namespace emm::mutants
