#include "order/checker.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "order_device.hpp"

namespace emm::order {
namespace {

constexpr DevicePtr kPtr{0x100000};
constexpr std::uint64_t kSize = 4096;
std::uint64_t no_event() noexcept { return 0; }

/// A checker around a device, and streams of that device.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() {
    OpenedDevice bare;
    bare.driver = std::make_unique<OrderDevice>();
    device = checker.watch(std::move(bare), 0);
    a = *driver().stream_create(StreamKind::non_blocking);
    b = *driver().stream_create(StreamKind::non_blocking);
    blocking = *driver().stream_create(StreamKind::blocking);
  }
  Driver& driver() { return *device.driver; }
  /// Allocation 1 lives and ends on `stream`, and 2 is given its memory on `next`.
  void live_and_end(StreamHandle stream) {
    checker.allocated(0, 1, kPtr, kSize, stream);
    checker.ending(0, 1, kPtr, stream);
  }
  std::vector<Hazard> reuse(StreamHandle next) {
    checker.allocated(0, 2, kPtr + kSize / 2, kSize, next);
    return checker.take_found();
  }
  EventHandle recorded(StreamHandle stream) {
    const auto event = driver().event_create();
    EXPECT_TRUE(event && driver().event_record(*event, stream));
    return *event;
  }

  Checker checker{&no_event};
  OpenedDevice device;
  StreamHandle a, b, blocking;
};

TEST_F(CheckerTest, TheSameStreamMayHaveItAtOnce) {
  live_and_end(a);

  EXPECT_TRUE(reuse(a).empty());
}

TEST_F(CheckerTest, AnotherStreamMustWait) {
  checker.name_stream(0, a, 11);
  checker.name_stream(0, b, 12);
  live_and_end(a);

  const auto found = reuse(b);

  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].how, Hazard::How::handed_out);
  EXPECT_EQ(found[0].id, 1u);
  EXPECT_EQ(found[0].stream, 11u);
  EXPECT_EQ(found[0].to, 2u);
  EXPECT_EQ(found[0].to_stream, 12u);
  EXPECT_TRUE(found[0].ended);
}

TEST_F(CheckerTest, AnEventAfterTheEndOrders) {
  live_and_end(a);
  const auto event = recorded(a);
  ASSERT_TRUE(driver().stream_wait_event(b, event));

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, AnEventBeforeTheEndDoesNot) {
  checker.allocated(0, 1, kPtr, kSize, a);
  const auto event = recorded(a);
  checker.ending(0, 1, kPtr, a);
  ASSERT_TRUE(driver().stream_wait_event(b, event));

  EXPECT_EQ(reuse(b).size(), 1u);
}

TEST_F(CheckerTest, OrderGoesByWayOfAThirdStream) {
  live_and_end(a);
  const auto first = recorded(a);
  ASSERT_TRUE(driver().stream_wait_event(blocking, first));
  const auto second = recorded(blocking);
  ASSERT_TRUE(driver().stream_wait_event(b, second));

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, AWaitOfTheHostOrdersForAll) {
  live_and_end(a);
  ASSERT_TRUE(driver().stream_synchronize(a));

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, AWaitForAnotherStreamOrdersNothing) {
  live_and_end(a);
  ASSERT_TRUE(driver().stream_synchronize(b));

  EXPECT_EQ(reuse(b).size(), 1u);
}

TEST_F(CheckerTest, AFreeOfOtherMemoryWaitsForAllWork) {
  const auto other = driver().mem_alloc(64);
  live_and_end(a);
  ASSERT_TRUE(other && driver().mem_free(*other));

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, WhatTheHarnessAsksOrdersNothing) {
  live_and_end(a);
  {
    const Quiet quiet;
    ASSERT_TRUE(driver().ctx_synchronize());
  }

  EXPECT_EQ(reuse(b).size(), 1u);
}

TEST_F(CheckerTest, TheDefaultStreamOrdersWithBlockingStreamsOnly) {
  live_and_end({});
  EXPECT_TRUE(reuse(blocking).empty());

  checker.ending(0, 2, kPtr + kSize / 2, blocking);
  checker.allocated(0, 3, kPtr, kSize, {});
  EXPECT_TRUE(checker.take_found().empty());

  checker.ending(0, 3, kPtr, {});
  checker.allocated(0, 4, kPtr, kSize, a);
  EXPECT_EQ(checker.take_found().size(), 1u);
}

TEST_F(CheckerTest, AFreeOnAnotherStreamNeedsBothStreams) {
  checker.allocated(0, 1, kPtr, kSize, a);
  checker.ending(0, 1, kPtr, b);

  EXPECT_EQ(reuse(b).size(), 1u) << "the work on its own stream was not waited for";
}

TEST_F(CheckerTest, AStreamThatWaitedForTheMemorysOwnHasItWhenItFreesIt) {
  checker.allocated(0, 1, kPtr, kSize, a);
  const auto event = recorded(a);
  ASSERT_TRUE(driver().stream_wait_event(b, event));
  checker.ending(0, 1, kPtr, b);

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, UnmappingWaitsForNobody) {
  live_and_end(a);
  ASSERT_TRUE(driver().mem_unmap(kPtr, kSize));

  const auto found = checker.take_found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].how, Hazard::How::unmapped);
  EXPECT_TRUE(reuse(b).empty()) << "it is found once";
}

TEST_F(CheckerTest, UnmappingWhatIsOverIsFine) {
  live_and_end(a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  ASSERT_TRUE(driver().mem_unmap(kPtr, kSize));

  EXPECT_TRUE(checker.take_found().empty());
}

TEST_F(CheckerTest, LiveMemoryMustNotBeUnmappedOrFreed) {
  const auto ptr = driver().mem_alloc(kSize);
  ASSERT_TRUE(ptr);
  checker.allocated(0, 1, *ptr, kSize, a);
  ASSERT_TRUE(driver().mem_free(*ptr));

  const auto found = checker.take_found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].how, Hazard::How::given_back);
  EXPECT_FALSE(found[0].ended);
}

TEST_F(CheckerTest, AFreeInTheOrderOfAStreamMustComeAfterTheWorkElsewhere) {
  const auto ptr = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(ptr);
  checker.allocated(0, 1, *ptr, kSize, a);
  checker.ending(0, 1, *ptr, a);
  ASSERT_TRUE(driver().mem_free_async(*ptr, b));
  EXPECT_EQ(checker.take_found().size(), 1u);

  const auto again = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(again);
  checker.allocated(0, 2, *again, kSize, a);
  checker.ending(0, 2, *again, a);
  ASSERT_TRUE(driver().mem_free_async(*again, a));
  const auto third = driver().mem_alloc_async(kSize, b);
  ASSERT_TRUE(third);
  checker.allocated(0, 3, *third, kSize, b);
  EXPECT_TRUE(checker.take_found().empty()) << "the driver's pool orders what it hands out";
}

TEST_F(CheckerTest, UseOnAnotherStreamReachesUntilThere) {
  checker.allocated(0, 1, kPtr, kSize, a);
  checker.used(0, 1, kPtr, b);
  checker.ending(0, 1, kPtr, a);

  EXPECT_EQ(reuse(a).size(), 1u);
}

TEST_F(CheckerTest, AHostFunctionBeginsWhenWhatIsBeforeItIsOver) {
  live_and_end(a);
  ASSERT_TRUE(driver().launch_host_func(
      a, [](void*) {}, nullptr));

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, EachThreadHasADefaultStreamOfItsOwn) {
  live_and_end(kPerThreadStream);
  std::vector<Hazard> found;

  std::thread([&] { found = reuse(kPerThreadStream); }).join();
  EXPECT_EQ(found.size(), 1u);
  EXPECT_TRUE(reuse(kPerThreadStream).empty());
}

TEST_F(CheckerTest, ManyStreamsThatComeAndGoAreForgotten) {
  for (int i = 0; i < 20'000; ++i) {
    const auto stream = driver().stream_create(StreamKind::blocking);
    ASSERT_TRUE(stream);
    live_and_end(*stream);
    ASSERT_TRUE(driver().stream_synchronize(*stream));
    ASSERT_TRUE(driver().stream_destroy(*stream));
  }
  EXPECT_TRUE(checker.take_found().empty());
}

}  // namespace
}  // namespace emm::order
