#include "stream_order/checker.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "order_device.hpp"

namespace emm::stream_order {
namespace {

constexpr DevicePtr kPtr{0x100000};
constexpr std::uint64_t kSize = 4096;
std::uint64_t no_event() noexcept { return 0; }

/// A checker around a device, and streams of that device.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() {
    OpenedDevice bare;
    auto made = std::make_unique<OrderDevice>();
    order_device = made.get();
    bare.driver = std::move(made);
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

  PhysicalHandle memory(std::uint64_t size) {
    const auto handle = driver().mem_create(size);
    EXPECT_TRUE(handle);
    return *handle;
  }
  void map(DevicePtr at, std::uint64_t size, PhysicalHandle handle) {
    EXPECT_TRUE(driver().mem_map(at, size, 0, handle));
  }
  void live_and_end_at(DevicePtr ptr, StreamHandle stream) {
    checker.allocated(0, 1, ptr, kSize, stream);
    checker.ending(0, 1, ptr, stream);
  }
  std::vector<Hazard> given_at(DevicePtr ptr, std::uint64_t size, StreamHandle stream) {
    checker.allocated(0, 2, ptr, size, stream);
    return checker.take_found();
  }

  Checker checker{&no_event};
  OrderDevice* order_device = nullptr;
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

TEST_F(CheckerTest, AHostThatWaitedForTheMemorysOwnStreamHandedItOver) {
  checker.allocated(0, 1, kPtr, kSize, a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  checker.ending(0, 1, kPtr, b);

  EXPECT_TRUE(reuse(b).empty());
}

TEST_F(CheckerTest, AHostThatWaitedBeforeTheBirthHandedNothingOver) {
  checker.allocated(0, 3, kPtr + 2 * kSize, kSize, a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  checker.allocated(0, 1, kPtr, kSize, a);
  checker.ending(0, 1, kPtr, b);

  EXPECT_EQ(reuse(b).size(), 1u);
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

TEST_F(CheckerTest, WhatAnotherThreadIsGivenBeforeAFreeReturnsIsItsOwn) {
  const auto first = driver().mem_alloc(kSize);
  ASSERT_TRUE(first);
  DevicePtr second;
  order_device->meanwhile = [&] {
    std::thread([&] {
      second = *driver().mem_alloc(kSize);
      checker.allocated(0, 2, second, kSize, b);
    }).join();
  };
  ASSERT_TRUE(driver().mem_free(*first));
  ASSERT_EQ(second, *first);
  EXPECT_TRUE(checker.take_found().empty());

  ASSERT_TRUE(driver().mem_free(second));
  EXPECT_EQ(checker.take_found().size(), 1u) << "it is live";
}

TEST_F(CheckerTest, PageLockedMemoryThatAnotherThreadIsGivenBeforeAFreeReturnsIsItsOwn) {
  const auto first = driver().mem_host_alloc(kSize, {});
  ASSERT_TRUE(first);
  const DevicePtr ptr{reinterpret_cast<std::uintptr_t>(*first)};
  checker.allocated(0, 1, ptr, kSize, a);
  checker.ending(0, 1, ptr, a);
  order_device->meanwhile = [&] {
    std::thread([&] {
      ASSERT_EQ(*driver().mem_host_alloc(kSize, {}), *first);
      checker.allocated(0, 2, ptr, kSize, b);
    }).join();
  };
  ASSERT_TRUE(driver().mem_free_host(*first));
  EXPECT_TRUE(checker.take_found().empty());
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

TEST_F(CheckerTest, TheDriversPoolOrdersMemoryForTheStreamOfTheCallAlone) {
  auto ptr = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(ptr);
  checker.allocated(0, 1, *ptr, kSize, a);
  checker.ending(0, 1, *ptr, a);
  ASSERT_TRUE(driver().mem_free_async(*ptr, a));
  ptr = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(ptr);
  checker.allocated(0, 2, *ptr, kSize, b);
  EXPECT_EQ(checker.take_found().size(), 1u) << "b waits for nothing";

  checker.ending(0, 2, *ptr, b);
  ASSERT_TRUE(driver().mem_free_async(*ptr, b));
  ptr = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(ptr && driver().stream_wait_event(b, recorded(a)));
  checker.allocated(0, 3, *ptr, kSize, b);
  EXPECT_TRUE(checker.take_found().empty()) << "b waits for a, which waits for the free";
}

TEST_F(CheckerTest, PartsOfAFormerOwnerInTheDriversPoolAreFreedEachInItsOwnOrder) {
  const auto whole = driver().mem_alloc_async(4 * kSize, a);
  ASSERT_TRUE(whole);
  checker.allocated(0, 1, *whole, 4 * kSize, a);
  checker.ending(0, 1, *whole, a);
  ASSERT_TRUE(driver().mem_free_async(*whole, a));

  // Each new owner gets more room than it asked for, which stays the former owner's.
  const auto part = [&](std::uint32_t id, DevicePtr at, StreamHandle stream) {
    order_device->give_next(at);
    ASSERT_TRUE(driver().mem_alloc_async(kSize, stream));
    checker.allocated(0, id, at, kSize / 2, stream);
  };
  part(2, *whole, b);
  part(3, *whole + 2 * kSize, a);
  checker.ending(0, 2, *whole, b);
  ASSERT_TRUE(driver().mem_free_async(*whole, b));
  checker.ending(0, 3, *whole + 2 * kSize, a);
  ASSERT_TRUE(driver().mem_free_async(*whole + 2 * kSize, a));
  EXPECT_TRUE(checker.take_found().empty()) << "what is freed on b is another part";

  checker.allocated(0, 4, *whole + kSize / 2, kSize / 2, a);
  EXPECT_EQ(checker.take_found().size(), 1u) << "a waits for nothing of b";
  checker.allocated(0, 5, *whole + 2 * kSize + kSize / 2, kSize / 2, a);
  EXPECT_TRUE(checker.take_found().empty()) << "that part was freed on a";
}

TEST_F(CheckerTest, AFreeInTheOrderOfAStreamThatTheDriverRefusesOrdersNothing) {
  const auto ptr = driver().mem_alloc_async(kSize, a);
  ASSERT_TRUE(ptr);
  checker.allocated(0, 1, *ptr, kSize, a);
  checker.ending(0, 1, *ptr, a);
  order_device->refuse();
  EXPECT_FALSE(driver().mem_free_async(*ptr, b));
  EXPECT_TRUE(checker.take_found().empty());
  checker.allocated(0, 2, *ptr, kSize, b);
  EXPECT_EQ(checker.take_found().size(), 1u);
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

TEST_F(CheckerTest, MemoryMayOutliveItsStream) {
  checker.allocated(0, 1, kPtr, kSize, a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  ASSERT_TRUE(driver().stream_destroy(a));
  ASSERT_TRUE(driver().ctx_synchronize());
  ASSERT_TRUE(driver().stream_destroy(b));  // what is over is forgotten then

  checker.ending(0, 1, kPtr, {});

  EXPECT_TRUE(reuse(blocking).empty()) << "no more work comes to a stream that is gone";
}

TEST_F(CheckerTest, WorkOutlivesItsStream) {
  checker.allocated(0, 1, kPtr, kSize, a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  ASSERT_TRUE(driver().stream_destroy(a));

  checker.ending(0, 1, kPtr, {});

  EXPECT_EQ(reuse(b).size(), 1u) << "it may have got some after the wait";
}

TEST_F(CheckerTest, WhatCameBackIsTheOwnStreams) {
  checker.allocated(0, 1, kPtr, kSize, a);
  checker.used(0, 1, kPtr, b);
  checker.came_back(0, 1, kPtr, b);
  ASSERT_TRUE(driver().stream_destroy(b));
  checker.ending(0, 1, kPtr, a);

  EXPECT_TRUE(reuse(a).empty());
}

// Physical memory that is mapped at several addresses.

constexpr DevicePtr kOne{0x200000000}, kOther{0x300000000};
constexpr std::uint64_t kPage = 2 << 20;

TEST_F(CheckerTest, MemoryIsTheSameAtEachOfItsAddresses) {
  const auto handle = memory(kPage);
  map(kOne, kPage, handle);
  map(kOther, kPage, handle);
  live_and_end_at(kOne + 8192, a);

  EXPECT_TRUE(given_at(kOther, 8192, b).empty()) << "what is before it";
  EXPECT_TRUE(given_at(kOther + 8192 + kSize, 8192, b).empty()) << "what is behind it";
  const auto found = given_at(kOther + (8192 + kSize - 1), 1, b);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].how, Hazard::How::handed_out);
  EXPECT_EQ(found[0].id, 1u);
}

TEST_F(CheckerTest, AnOrderHoldsAtEachOfItsAddresses) {
  const auto handle = memory(kPage);
  map(kOne, kPage, handle);
  map(kOther, kPage, handle);
  live_and_end_at(kOne, a);
  ASSERT_TRUE(driver().stream_wait_event(b, recorded(a)));

  EXPECT_TRUE(given_at(kOther, kPage, b).empty());
}

TEST_F(CheckerTest, ABlockOfSeveralPiecesIsFoundInEachAndAccusedOnce) {
  const auto low = memory(kPage), high = memory(2 * kPage);
  map(kOne, kPage, low);
  map(kOne + kPage, 2 * kPage, high);
  map(kOther, 2 * kPage, high);
  map(kOther + 2 * kPage, kPage, low);
  const auto in_pieces = kOther + kPage;  // the upper half of `high`, then `low`
  checker.allocated(0, 1, in_pieces, 2 * kPage, a);
  checker.used(0, 1, in_pieces, b);
  checker.ending(0, 1, in_pieces, a);

  EXPECT_TRUE(given_at(kOne + kPage, kPage, blocking).empty()) << "the lower half of `high`";
  EXPECT_EQ(given_at(kOne, 3 * kPage, blocking).size(), 1u);
}

TEST_F(CheckerTest, EachPieceOfABlockIsRememberedUntilItIsGivenAway) {
  const auto low = memory(kPage), high = memory(kPage);
  map(kOne, kPage, low);
  map(kOne + 2 * kPage, kPage, high);
  map(kOther, kPage, high);
  map(kOther + kPage, kPage, low);
  checker.allocated(0, 1, kOther, 2 * kPage, a);
  checker.ending(0, 1, kOther, a);

  EXPECT_TRUE(given_at(kOne, kPage, a).empty());
  checker.allocated(0, 3, kOne + 2 * kPage, kPage, b);
  const auto found = checker.take_found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, 1u);
}

TEST_F(CheckerTest, LiveMemoryIsNotGivenAgainAtAnotherAddress) {
  const auto handle = memory(kPage);
  map(kOne, kPage, handle);
  map(kOther, kPage, handle);
  checker.allocated(0, 1, kOne, kSize, a);

  const auto found = given_at(kOther, kSize, a);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, 1u);
  EXPECT_FALSE(found[0].ended);
}

TEST_F(CheckerTest, UnmappingConcernsWorkThatGoesByThatMapping) {
  const auto handle = memory(kPage);
  map(kOne, kPage, handle);
  map(kOther, kPage, handle);
  live_and_end_at(kOne, a);

  ASSERT_TRUE(driver().mem_unmap(kOther, kPage));
  EXPECT_TRUE(checker.take_found().empty());
  ASSERT_TRUE(driver().mem_unmap(kOne, kPage));
  ASSERT_EQ(checker.take_found().size(), 1u) << "the work is not forgotten";
}

TEST_F(CheckerTest, OtherMemoryAtTheSameAddressIsOtherMemory) {
  const auto handle = memory(kPage), other = memory(kPage);
  map(kOne, kPage, handle);
  map(kOther, kPage, handle);
  live_and_end_at(kOther, a);
  ASSERT_TRUE(driver().mem_unmap(kOne, kPage));
  map(kOne, kPage, other);

  EXPECT_TRUE(given_at(kOne, kPage, b).empty());
}

TEST_F(CheckerTest, ANameThatComesBackIsOtherMemory) {
  order_device->name_all(7);
  const auto first = memory(kPage);
  map(kOne, kPage, first);
  ASSERT_TRUE(driver().mem_release(first)) << "the memory lives as long as its mapping";
  const auto second = memory(kPage);
  map(kOther, kPage, second);
  live_and_end_at(kOne, a);

  EXPECT_TRUE(given_at(kOther, kPage, b).empty());
}

TEST_F(CheckerTest, AMappingThatIsNotUnmappedStays) {
  const auto handle = memory(kPage);
  map(kOne, kPage, handle);
  live_and_end_at(kOne, a);
  ASSERT_TRUE(driver().stream_synchronize(a));
  order_device->refuse();
  ASSERT_FALSE(driver().mem_unmap(kOne, kPage));
  ASSERT_FALSE(driver().mem_release(handle));
  map(kOther, kPage, handle);
  live_and_end_at(kOne, a);

  EXPECT_EQ(given_at(kOther, kPage, b).size(), 1u);
}

}  // namespace
}  // namespace emm::stream_order
