#include "emm/pending_deallocs.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "driver/call.hpp"
#include "scripted_driver.hpp"

namespace emm {
namespace {

using test::RecordingObserver;
using test::ScriptedDriver;

struct Queue {
  explicit Queue(std::uint64_t capacity, Profile profile = Profile::standard)
      : pending(driver, {}, &observer, profile) {
    pending.set_memory_capacity(capacity);
  }
  /// Adds a free of `handle`, which the driver takes as an event so that any number is good.
  Status add(std::uint64_t handle, std::optional<std::uint64_t> size = {}) {
    return pending.add(Call::event_destroy, handle, size);
  }
  std::vector<std::uint64_t> freed() const {
    std::vector<std::uint64_t> handles;
    for (const auto& call : driver.calls(Call::event_destroy)) handles.push_back(call.argument);
    return handles;
  }
  ScriptedDriver driver;
  RecordingObserver observer;
  PendingDeallocs pending;
};

std::vector<std::uint64_t> up_to(std::uint64_t n) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 1; i <= n; ++i) numbers.push_back(i);
  return numbers;
}

TEST(PendingDeallocs, TheEleventhItemFlushesAllInOrder) {  // PD-3, PD-8, PD-9
  Queue queue(1000);

  for (std::uint64_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(queue.add(i));
    ASSERT_EQ(queue.pending.size(), i);
  }
  ASSERT_TRUE(queue.add(11));

  EXPECT_EQ(queue.pending.size(), 0u);
  EXPECT_EQ(queue.freed(), up_to(11));
  EXPECT_EQ(queue.observer.flushes, (std::vector<RecordingObserver::Flush>{{11, 0}}));
}

TEST(PendingDeallocs, OneByteOverTheRatioFlushes) {  // PD-4
  Queue queue(1000);

  ASSERT_TRUE(queue.add(1, 200));
  EXPECT_EQ(queue.pending.size(), 1u);
  ASSERT_TRUE(queue.add(2, 1));

  EXPECT_EQ(queue.observer.flushes, (std::vector<RecordingObserver::Flush>{{2, 201}}));
  EXPECT_EQ(queue.pending.bytes(), 0u);
}

TEST(PendingDeallocs, TheByteLimitIsRoundedDown) {  // PD-4
  Queue queue(999);

  ASSERT_TRUE(queue.add(1, 199));
  EXPECT_EQ(queue.pending.size(), 1u);
  ASSERT_TRUE(queue.add(2, 1));

  EXPECT_EQ(queue.pending.size(), 0u);
}

TEST(PendingDeallocs, AnItemOfNoBytesNeverTripsTheByteLimit) {  // PD-7
  Queue queue(1000);

  ASSERT_TRUE(queue.add(1, 200));
  ASSERT_TRUE(queue.add(2, 0));

  EXPECT_EQ(queue.pending.size(), 2u);
}

TEST(PendingDeallocs, WithoutACapacityAnySizedItemFlushes) {  // PD-6
  ScriptedDriver driver;
  RecordingObserver observer;
  PendingDeallocs pending(driver, {}, &observer);

  for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(pending.add(Call::event_destroy, i, {}));
  EXPECT_EQ(pending.size(), 10u);
  pending.set_limits({.count = 100, .ratio = 0.2});
  ASSERT_TRUE(pending.add(Call::event_destroy, 11, 1));

  EXPECT_EQ(observer.flushes, (std::vector<RecordingObserver::Flush>{{11, 1}}));
}

TEST(PendingDeallocs, LimitsAreReadAtEveryAdd) {  // PD-5
  Queue queue(1000);
  ASSERT_TRUE(queue.add(1));
  queue.pending.set_limits({.count = 0, .ratio = 0.2});
  EXPECT_EQ(queue.pending.size(), 1u);

  ASSERT_TRUE(queue.add(2));
  EXPECT_EQ(queue.freed(), up_to(2));
  queue.pending.set_limits({.count = 10, .ratio = 0});
  ASSERT_TRUE(queue.add(3, 1));
  EXPECT_EQ(queue.freed(), up_to(3));
}

TEST(PendingDeallocs, ClearIsIdempotentAndSaysNothingOfAnEmptyQueue) {  // PD-15
  Queue queue(1000);
  ASSERT_TRUE(queue.add(1));

  EXPECT_TRUE(queue.pending.clear());
  EXPECT_TRUE(queue.pending.clear());

  EXPECT_EQ(queue.freed(), up_to(1));
  EXPECT_EQ(queue.observer.flushes.size(), 1u);
}

TEST(PendingDeallocs, DisablingNestsAndItsEndFlushesNothing) {  // PD-12, PD-13, PD-14
  Queue queue(1000);
  {
    const auto outer = queue.pending.disable();
    {
      const auto inner = queue.pending.disable();
      for (std::uint64_t i = 1; i <= 15; ++i) ASSERT_TRUE(queue.add(i, 100));
      EXPECT_TRUE(queue.pending.clear());
    }
    EXPECT_TRUE(queue.pending.is_disabled());
    EXPECT_TRUE(queue.pending.clear());
    EXPECT_EQ(queue.pending.size(), 15u);
    EXPECT_EQ(queue.pending.bytes(), 1500u);
  }
  EXPECT_EQ(queue.pending.size(), 15u) << "the backlog waits for a reason to be made";

  ASSERT_TRUE(queue.add(16));
  EXPECT_EQ(queue.freed(), up_to(16));
}

TEST(PendingDeallocs, WhatAFreeAddsIsFreedInTheSameFlush) {  // PD-10
  Queue queue(1000);
  bool once = true;
  queue.driver.during = [&](const auto&) {
    if (!std::exchange(once, false)) return;
    for (std::uint64_t i = 10; i < 13; ++i) EXPECT_TRUE(queue.add(i));
  };
  ASSERT_TRUE(queue.add(1));
  ASSERT_TRUE(queue.add(2));

  EXPECT_TRUE(queue.pending.clear());

  EXPECT_EQ(queue.pending.size(), 0u);
  EXPECT_EQ(queue.freed(), (std::vector<std::uint64_t>{1, 2, 10, 11, 12}));
}

TEST(PendingDeallocs, ARefusedFreeStopsNoOther) {  // PD-11
  Queue queue(1000);
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.add(i, 10));
  queue.driver.answer(Call::event_destroy, {0, 700, 0});

  const auto done = queue.pending.clear();

  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().native, 700);
  EXPECT_EQ(queue.freed(), up_to(3));
  EXPECT_EQ(queue.pending.bytes(), 0u);
  EXPECT_EQ(queue.pending.failures(), 1u);
  EXPECT_EQ(queue.observer.failures, std::vector<int>{700});
  EXPECT_EQ(queue.observer.flushes, (std::vector<RecordingObserver::Flush>{{3, 30}}));
}

TEST(PendingDeallocs, AsNumbaARefusedFreeKeepsTheRestAndTheOldTotal) {  // PD-11
  Queue queue(1000, Profile::numba);
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.add(i, 60));
  queue.driver.answer(Call::event_destroy, {0, 700});

  EXPECT_FALSE(queue.pending.clear());

  EXPECT_EQ(queue.freed(), up_to(2));
  EXPECT_EQ(queue.pending.size(), 1u);
  EXPECT_EQ(queue.pending.bytes(), 180u);
  ASSERT_TRUE(queue.add(4, 21));
  EXPECT_EQ(queue.freed(), up_to(4)) << "the old total makes the next sized item flush early";
  EXPECT_EQ(queue.pending.bytes(), 0u);
}

TEST(PendingDeallocs, SaysWhatWasAdded) {  // PD-16, PD-18
  Queue queue(1000);
  ASSERT_TRUE(queue.add(1, 64));
  ASSERT_TRUE(queue.add(2));

  ASSERT_EQ(queue.observer.added.size(), 2u);
  EXPECT_EQ(queue.observer.added[0].second, std::optional<std::uint64_t>(64));
  EXPECT_EQ(queue.observer.added[1].second, std::nullopt);
}

TEST(PendingDeallocs, ItsEndAbandonsWhatIsQueued) {  // ERR-3
  ScriptedDriver driver;
  {
    PendingDeallocs pending(driver, {});
    for (std::uint64_t i = 1; i <= 13; ++i) ASSERT_TRUE(pending.add(Call::event_destroy, i, {}));
  }
  EXPECT_EQ(driver.count(Call::event_destroy), 11u);
}

TEST(PendingDeallocs, FromManyThreadsEveryFreeIsMadeOnce) {  // PD-17
  Queue queue(1 << 20);
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 2000;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&queue, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        queue.pending.reserve_slot();
        EXPECT_TRUE(queue.add(t * kEach + i + 1, i % 64));
        if (i % 97 == 0) {
          EXPECT_TRUE(queue.pending.clear());
        }
        if (i % 31 == 0) {
          const auto guard = queue.pending.disable();
          EXPECT_TRUE(queue.add(kThreads * kEach + t * kEach + i + 1, 5));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(queue.pending.clear());

  auto freed = queue.freed();
  std::sort(freed.begin(), freed.end());
  EXPECT_EQ(std::adjacent_find(freed.begin(), freed.end()), freed.end());
  EXPECT_EQ(freed.size(), kThreads * (kEach + (kEach + 30) / 31));
  EXPECT_EQ(queue.pending.bytes(), 0u);
  std::size_t flushed = 0;
  for (const auto& flush : queue.observer.flushes) flushed += flush.count;
  EXPECT_EQ(flushed, freed.size());
}

TEST(PendingDeallocs, ADeferralThatBeginsInAFlushEndsIt) {
  Queue queue(1000);
  std::optional<DeferCleanup> guard;
  queue.driver.during = [&](const auto&) { guard.emplace(queue.pending.disable()); };
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.add(i, 10));

  EXPECT_TRUE(queue.pending.clear());
  EXPECT_EQ(queue.freed(), up_to(1));
  EXPECT_EQ(queue.pending.size(), 2u);
  EXPECT_EQ(queue.pending.bytes(), 20u);

  queue.driver.during = nullptr;
  guard.reset();
  EXPECT_TRUE(queue.pending.clear());
  EXPECT_EQ(queue.freed(), up_to(3));
  EXPECT_EQ(queue.observer.flushes, (std::vector<RecordingObserver::Flush>{{1, 10}, {2, 20}}));
}

TEST(PendingDeallocs, InNumbasProfileAFlushGoesOnThoughADeferralBegins) {
  Queue queue(1000, Profile::numba);
  std::optional<DeferCleanup> guard;
  queue.driver.during = [&](const auto&) {
    if (!guard) guard.emplace(queue.pending.disable());
  };
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(queue.add(i));

  EXPECT_TRUE(queue.pending.clear());

  EXPECT_EQ(queue.freed(), up_to(3));
}

TEST(PendingDeallocs, ClearWaitsForFreesThatAnotherThreadHasUnderWay) {
  Queue queue(1000);
  std::mutex mutex;
  std::condition_variable changed;
  bool inside = false;
  bool go_on = false;
  bool returned = false;
  queue.driver.during = [&](const auto&) {
    std::unique_lock lock(mutex);
    inside = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go_on; });
  };
  ASSERT_TRUE(queue.add(1));
  std::thread freeing([&] { EXPECT_TRUE(queue.pending.clear()); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return inside; });
  }
  std::thread waiting([&] {
    EXPECT_TRUE(queue.pending.clear());
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(go_on);
    returned = true;
  });
  {
    const std::lock_guard lock(mutex);
    go_on = true;
    changed.notify_all();
  }
  freeing.join();
  waiting.join();
  EXPECT_TRUE(returned);
}

}  // namespace
}  // namespace emm
