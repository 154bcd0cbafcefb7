#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

/// A driver whose streams hold back their work as `order` says.
class StreamsTest : public SimTest {
 protected:
  explicit StreamsTest(const SimOptions& options = {.capacity = 64_MiB}) : SimTest(options) {
    ptr_ = *driver().mem_alloc(1_MiB);
    EXPECT_TRUE(driver().memset_d8(ptr_, 0, 1_MiB));
  }
  DevicePtr ptr() const { return ptr_; }
  StreamHandle stream() { return *driver().stream_create(StreamKind::non_blocking); }
  EventHandle event() { return *driver().event_create(); }
  void fill(StreamHandle stream, std::uint8_t value) {
    EXPECT_TRUE(driver().memset_d8_async(ptr_, value, 1_MiB, stream));
  }
  /// What a copy on the legacy stream sees, which waits for no non-blocking stream.
  std::uint32_t seen() { return word_at(ptr_) & 0xff; }

 private:
  DevicePtr ptr_;
};

TEST_F(StreamsTest, AWriteThatNothingOrderedIsNotSeen) {
  const auto put = stream();
  fill(put, 7);

  EXPECT_EQ(seen(), 0u);
  EXPECT_FALSE(*driver().stream_query(put));
  ASSERT_TRUE(driver().stream_synchronize(put));
  EXPECT_EQ(seen(), 7u);
  EXPECT_TRUE(*driver().stream_query(put));
}

TEST_F(StreamsTest, AWriteOnABlockingStreamIsSeenByACopy) {
  fill(*driver().stream_create(StreamKind::blocking), 7);

  EXPECT_EQ(seen(), 7u);
}

TEST_F(StreamsTest, AnEventOrdersWhatItRecordedAndNoMore) {
  const auto put = stream();
  const auto first = event();
  fill(put, 1);
  ASSERT_TRUE(driver().event_record(first, put));
  fill(put, 2);

  ASSERT_TRUE(driver().event_synchronize(first));

  EXPECT_EQ(seen(), 1u) << "what was put after the record is still pending";
}

TEST_F(StreamsTest, AStreamWaitsForTheRecordThatWasLastWhenItAsked) {
  const auto first = stream(), second = stream();
  const auto mark = event();
  fill(first, 1);
  ASSERT_TRUE(driver().event_record(mark, first));
  ASSERT_TRUE(driver().stream_wait_event(second, mark));
  fill(first, 2);
  ASSERT_TRUE(driver().event_record(mark, first));

  ASSERT_TRUE(driver().stream_synchronize(second));

  EXPECT_EQ(seen(), 1u);
}

TEST_F(StreamsTest, OrderIsKeptThroughAChainOfStreams) {
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 50; ++i) streams.push_back(stream());
  const auto mark = event();
  for (std::size_t i = 0; i < 5000; ++i) {
    const auto here = streams[i % 50];
    if (i > 0) {
      ASSERT_TRUE(driver().stream_wait_event(here, mark));
    }
    fill(here, static_cast<std::uint8_t>(i % 251));
    ASSERT_TRUE(driver().event_record(mark, here));
  }

  ASSERT_TRUE(driver().event_synchronize(mark));

  EXPECT_EQ(seen(), 4999u % 251);
}

TEST_F(StreamsTest, AnEventOfAnIdleStreamIsDoneAtOnce) {
  const auto mark = event();
  ASSERT_TRUE(driver().event_record(mark, stream()));

  EXPECT_TRUE(*driver().event_query(mark));
}

TEST_F(StreamsTest, AskingOverAndOverSeesWorkDone) {
  const auto put = stream();
  fill(put, 1);
  fill(put, 2);
  int asked = 0;
  while (!*driver().stream_query(put)) ++asked;

  EXPECT_EQ(asked, 31) << "every 16th question in vain does one piece";
}

TEST_F(StreamsTest, AFullQueueWaitsForItsFirstPiece) {
  const auto put = stream();
  const auto mark = event();
  fill(put, 1);
  ASSERT_TRUE(driver().event_record(mark, put));
  for (int i = 0; i < 1022; ++i) fill(put, 2);
  EXPECT_EQ(seen(), 0u);

  fill(put, 2);

  EXPECT_EQ(seen(), 1u);
}

TEST_F(StreamsTest, FreesAndUnregistrationsWaitForAllWork) {
  for (int call = 0; call < 3; ++call) {
    SCOPED_TRACE(call);
    const auto spare = *driver().mem_alloc(4_KiB);
    const auto host = *driver().mem_host_alloc(4_KiB, {});
    std::vector<std::byte> own(4_KiB);
    ASSERT_TRUE(driver().mem_host_register({own.data(), own.size()}, {}));
    const auto put = stream();
    fill(put, static_cast<std::uint8_t>(call + 1));
    ASSERT_NE(seen(), static_cast<std::uint32_t>(call + 1));

    ASSERT_TRUE(call == 0   ? driver().mem_free(spare)
                : call == 1 ? driver().mem_free_host(host)
                            : driver().mem_host_unregister(own.data()));

    EXPECT_EQ(seen(), static_cast<std::uint32_t>(call + 1));
    if (call != 2) {
      ASSERT_TRUE(driver().mem_host_unregister(own.data()));
    }
  }
}

TEST_F(StreamsTest, AllocationsAndQuestionsWaitForNothing) {
  const auto put = stream();
  fill(put, 7);

  ASSERT_TRUE(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().mem_host_alloc(4_KiB, {}));
  ASSERT_TRUE(driver().mem_get_info());
  ASSERT_TRUE(driver().mem_free({0}));
  ASSERT_FALSE(driver().mem_free(ptr() + 512));
  ASSERT_TRUE(driver().stream_destroy(put));

  EXPECT_EQ(seen(), 0u);
}

TEST_F(StreamsTest, WaitingAdvancesTheClockToTheWorksEnd) {
  const auto put = stream();
  const auto big = *driver().mem_alloc(32_MiB);
  const auto before = platform().clock().now_ns();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(driver().memset_d8_async(big, 1, 32_MiB, put));
  }
  const auto launched = platform().clock().now_ns();
  ASSERT_TRUE(driver().stream_synchronize(put));

  EXPECT_EQ(launched - before, 100 * 5'000u);
  // 280 us a GiB is 8.6 us of 32 MiB, and 1.5 us to begin.
  EXPECT_NEAR(static_cast<double>(platform().clock().now_ns() - before), 100 * 10'100.0, 20'000);
}

TEST_F(StreamsTest, HandlesThatAreNoStreamsOrEventsAreRefused) {
  const auto put = stream();
  const auto mark = event();
  ASSERT_TRUE(driver().stream_destroy(put));
  ASSERT_TRUE(driver().event_destroy(mark));

  EXPECT_EQ(native(driver().memset_d8_async(ptr(), 1, 1, put)), 400);
  EXPECT_EQ(native(driver().memset_d8_async(ptr(), 1, 0, put)), 400);
  EXPECT_EQ(native(driver().event_record(mark, {})), 400);
  EXPECT_EQ(native(driver().stream_wait_event({}, mark)), 400);
  EXPECT_EQ(native(driver().event_query(mark)), 400);
  EXPECT_EQ(native(driver().stream_destroy(kLegacyStream)), 400);
}

TEST_F(StreamsTest, AResetDropsPendingWork) {
  fill(kLegacyStream, 1);
  fill(stream(), 2);
  const auto mark = event();
  ASSERT_TRUE(driver().event_record(mark, {}));
  ASSERT_TRUE(driver().primary_ctx_reset());
  reopen();

  EXPECT_TRUE(driver().ctx_synchronize());
  EXPECT_TRUE(*driver().stream_query({}));
  EXPECT_EQ(native(driver().event_query(mark)), 400);
}

/// The same, with every order of work.
class OrdersTest : public testing::TestWithParam<sim::WorkOrder> {};

TEST_P(OrdersTest, OrderedWorkGivesTheSameContent) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  SimPlatform platform({.capacity = 64_MiB, .seed = kSeed, .order = GetParam()});
  auto device = *platform.open(0);
  auto& driver = *device.driver;
  Prng random(kSeed);
  constexpr std::size_t kCells = 8;
  std::vector<StreamHandle> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(*driver.stream_create(StreamKind::non_blocking));
  std::vector<EventHandle> last;  // of each cell: its last use
  for (std::size_t i = 0; i < kCells; ++i) last.push_back(*driver.event_create());
  const auto cells = *driver.mem_alloc(kCells * 512);
  ASSERT_TRUE(driver.memset_d8(cells, 0, kCells * 512));
  std::vector<std::uint8_t> expected(kCells);

  for (int step = 0; step < 3000; ++step) {
    const auto stream = streams[random.below(streams.size())];
    const auto to = random.below(kCells), from = random.below(kCells);
    ASSERT_TRUE(driver.stream_wait_event(stream, last[to]));
    ASSERT_TRUE(driver.stream_wait_event(stream, last[from]));
    if (random.chance(0.5)) {
      expected[to] = static_cast<std::uint8_t>(step);
      ASSERT_TRUE(driver.memset_d8_async(cells + to * 512, expected[to], 512, stream));
    } else if (to != from) {
      expected[to] = expected[from];
      ASSERT_TRUE(driver.memcpy_dtod_async(cells + to * 512, cells + from * 512, 512, stream));
    }
    ASSERT_TRUE(driver.event_record(last[to], stream));
    ASSERT_TRUE(driver.event_record(last[from], stream));
  }
  ASSERT_TRUE(driver.ctx_synchronize());

  for (std::size_t cell = 0; cell < kCells; ++cell) {
    std::byte byte{};
    ASSERT_TRUE(driver.memcpy_dtoh({&byte, 1}, cells + cell * 512));
    EXPECT_EQ(std::to_integer<int>(byte), expected[cell]) << cell;
  }
}

TEST_P(OrdersTest, TheSameCallsGiveTheSameAnswersAndTimes) {
  const auto run = [] {
    SimPlatform platform({.capacity = 64_MiB, .seed = 3, .order = GetParam()});
    auto device = *platform.open(0);
    auto& driver = *device.driver;
    Prng random(4);
    const auto ptr = *driver.mem_alloc(1_MiB);
    const StreamHandle streams[] = {{},
                                    *driver.stream_create(StreamKind::blocking),
                                    *driver.stream_create(StreamKind::non_blocking)};
    const auto mark = *driver.event_create();
    std::vector<std::uint64_t> seen;
    for (int step = 0; step < 500; ++step) {
      const auto stream = streams[random.below(3)];
      EXPECT_TRUE(driver.memset_d8_async(ptr, static_cast<std::uint8_t>(step), 1_MiB, stream));
      if (random.chance(0.3)) {
        EXPECT_TRUE(driver.event_record(mark, stream));
      }
      seen.push_back(*driver.stream_query(streams[random.below(3)]));
      seen.push_back(*driver.event_query(mark));
      seen.push_back(platform.clock().now_ns());
    }
    return seen;
  };

  EXPECT_EQ(run(), run());
}

std::string name_of(const testing::TestParamInfo<sim::WorkOrder>& order) {
  constexpr const char* kNames[] = {"Late", "Random", "Early"};
  return kNames[static_cast<std::size_t>(order.param)];
}

INSTANTIATE_TEST_SUITE_P(Work, OrdersTest,
                         testing::Values(sim::WorkOrder::late, sim::WorkOrder::random,
                                         sim::WorkOrder::early),
                         name_of);

class EarlyTest : public StreamsTest {
 protected:
  EarlyTest() : StreamsTest({.capacity = 64_MiB, .order = sim::WorkOrder::early}) {}
};

TEST_F(EarlyTest, WorkIsSeenAtOnceAndDoneWhenItsTimeHasPassed) {
  const auto put = stream();
  for (int i = 0; i < 2; ++i) fill(put, 7);
  const auto mark = event();
  ASSERT_TRUE(driver().event_record(mark, put));

  EXPECT_EQ(seen(), 7u);
  const auto big = *driver().mem_alloc(32_MiB);
  ASSERT_TRUE(driver().memset_d8_async(big, 7, 32_MiB, put));
  EXPECT_FALSE(*driver().stream_query(put));
  platform().clock().advance(20'000);
  EXPECT_TRUE(*driver().stream_query(put));
  EXPECT_TRUE(*driver().event_query(mark));
}

TEST_F(EarlyTest, HostFunctionsAreNotRunBeforeSomethingWaits) {
  int ran = 0;
  const auto put = stream();
  ASSERT_TRUE(driver().launch_host_func(
      put, [](void* count) { ++*static_cast<int*>(count); }, &ran));
  EXPECT_EQ(ran, 0);

  ASSERT_TRUE(driver().stream_synchronize(put));
  EXPECT_EQ(ran, 1);
}

class RandomTest : public StreamsTest {
 protected:
  RandomTest() : StreamsTest({.capacity = 64_MiB, .seed = 11, .order = sim::WorkOrder::random}) {}
};

TEST_F(RandomTest, UnorderedWorkIsSeenSometimes) {
  int seen_at_once = 0;
  for (int step = 0; step < 100; ++step) {
    const auto put = stream();
    fill(put, static_cast<std::uint8_t>(step + 1));
    seen_at_once += seen() == static_cast<std::uint32_t>(step + 1) ? 1 : 0;
    ASSERT_TRUE(driver().ctx_synchronize());
  }

  EXPECT_GT(seen_at_once, 10);
  EXPECT_LT(seen_at_once, 90);
}

TEST_F(StreamsTest, OtherThreadsCallWhileAHostFunctionRuns) {
  struct Meeting {
    std::atomic<bool> entered{false}, leave{false};
  } meeting;
  const auto put = stream();
  ASSERT_TRUE(driver().launch_host_func(
      put,
      [](void* argument) {
        auto& at = *static_cast<Meeting*>(argument);
        at.entered = true;
        while (!at.leave) std::this_thread::yield();
      },
      &meeting));
  fill(put, 3);
  std::thread waiter([&] { EXPECT_TRUE(driver().stream_synchronize(put)); });
  while (!meeting.entered) std::this_thread::yield();

  EXPECT_FALSE(*driver().stream_query(put));
  EXPECT_TRUE(driver().mem_alloc(1_MiB));
  std::thread second([&] { EXPECT_TRUE(driver().ctx_synchronize()); });
  meeting.leave = true;
  waiter.join();
  second.join();

  EXPECT_EQ(seen(), 3u);
}

TEST_F(StreamsTest, ThreadsUseStreamsTogether) {
  const auto shared = stream();
  const auto work = [&](std::uint64_t number) {
    Prng random(number);
    const auto own = *driver().mem_alloc(512);
    const auto mine = stream();
    const auto mark = event();
    for (int step = 0; step < 500; ++step) {
      const auto value = static_cast<std::uint8_t>(random.next());
      EXPECT_TRUE(driver().memset_d8_async(own, value, 512, mine));
      EXPECT_TRUE(driver().event_record(mark, mine));
      EXPECT_TRUE(driver().stream_wait_event(shared, mark));
      EXPECT_TRUE(driver().memset_d8_async(own, value, 256, kPerThreadStream));
      EXPECT_TRUE(driver().stream_query(shared));
      if (random.chance(0.2)) {
        EXPECT_TRUE(driver().stream_synchronize(shared));
        std::byte byte{};
        EXPECT_TRUE(driver().memcpy_dtoh({&byte, 1}, own + 511));
        EXPECT_EQ(std::to_integer<std::uint8_t>(byte), value);
      }
    }
    EXPECT_TRUE(driver().stream_destroy(mine));
    EXPECT_TRUE(driver().mem_free(own));
  };
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 4; ++number) threads.emplace_back(work, number);
  for (auto& thread : threads) thread.join();

  EXPECT_TRUE(driver().ctx_synchronize());
  EXPECT_TRUE(*driver().stream_query(shared));
}

}  // namespace
}  // namespace emm
