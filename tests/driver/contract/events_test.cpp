#include <thread>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Documented: before the first cuEventRecord an event represents an empty set of work.
TEST_P(DriverContract, AnEventThatRecordedNothingIsDone) {
  const auto event = new_event();

  EXPECT_TRUE(must(driver().event_query(event)));
  EXPECT_TRUE(driver().event_synchronize(event));
}

// Documented: the same, of cuStreamWaitEvent.
TEST_P(DriverContract, WaitingOnAnEventThatRecordedNothingDoesNothing) {
  const auto stream = new_stream();

  EXPECT_TRUE(driver().stream_wait_event(stream, new_event()));
  EXPECT_TRUE(must(driver().stream_query(stream)));
}

// Documented: cuEventRecord captures the contents of the stream at the time of the call.
TEST_P(DriverContract, AnEventIsDoneWhenTheWorkBeforeItIs) {
  const auto stream = new_stream();
  const auto event = new_event();
  Gate gate(driver(), stream);

  ASSERT_TRUE(driver().event_record(event, stream));
  EXPECT_FALSE(must(driver().event_query(event)));

  gate.open();
  ASSERT_TRUE(driver().event_synchronize(event));
  EXPECT_TRUE(gate.is_done());
  EXPECT_TRUE(must(driver().event_query(event)));
}

// Documented: uses of the stream after the call do not modify the event.
TEST_P(DriverContract, AnEventDoesNotWaitForLaterWork) {
  const auto stream = new_stream();
  const auto event = new_event();
  ASSERT_TRUE(driver().event_record(event, stream));
  Gate gate(driver(), stream);

  EXPECT_TRUE(driver().event_synchronize(event));
  EXPECT_TRUE(must(driver().event_query(event)));
  EXPECT_FALSE(gate.is_done());
}

// Documented: cuEventQuery asks, and work goes on without being waited for.
TEST_P(DriverContract, AskingAnEventLongEnoughSeesItDone) {
  const auto stream = new_stream();
  const auto event = new_event();
  const auto ptr = must(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 1_MiB, stream));
  ASSERT_TRUE(driver().event_record(event, stream));

  EXPECT_TRUE(comes_true([&] { return driver().event_query(event); }));
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuEventRecord overwrites the previously captured state.
TEST_P(DriverContract, AnEventIsRecordedAgain) {
  const auto stream = new_stream();
  const auto event = new_event();
  ASSERT_TRUE(driver().event_record(event, stream));
  ASSERT_TRUE(driver().event_synchronize(event));
  Gate gate(driver(), stream);

  ASSERT_TRUE(driver().event_record(event, stream));
  EXPECT_FALSE(must(driver().event_query(event)));
}

// Documented: the same; the stream of the first record is not in it any longer.
TEST_P(DriverContract, AnEventHoldsTheStreamOfItsLastRecord) {
  const auto busy = new_stream();
  const auto idle = new_stream();
  const auto event = new_event();
  Gate gate(driver(), busy);
  ASSERT_TRUE(driver().event_record(event, busy));

  ASSERT_TRUE(driver().event_record(event, idle));
  EXPECT_TRUE(driver().event_synchronize(event));
  EXPECT_FALSE(gate.is_done());
}

// Documented: cuStreamWaitEvent makes all future work of the stream wait.
TEST_P(DriverContract, WorkAfterAWaitIsDoneAfterTheEvent) {
  const auto first = new_stream();
  const auto second = new_stream();
  const auto event = new_event();
  const auto from = must(driver().mem_alloc(1_MiB));
  const auto to = must(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().memset_d8(from, 1, 1_MiB));
  {
    Gate gate(driver(), first);
    ASSERT_TRUE(driver().memset_d8_async(from, 2, 1_MiB, first));
    ASSERT_TRUE(driver().event_record(event, first));

    ASSERT_TRUE(driver().stream_wait_event(second, event));
    ASSERT_TRUE(driver().memcpy_dtod_async(to, from, 1_MiB, second));
    EXPECT_FALSE(must(driver().stream_query(second)));

    gate.open();
    ASSERT_TRUE(driver().stream_synchronize(second));
    EXPECT_TRUE(gate.is_done());
  }
  EXPECT_EQ(byte_at(to), 2);
  EXPECT_TRUE(driver().mem_free(from));
  EXPECT_TRUE(driver().mem_free(to));
}

// Documented: future work, so what is there already does not wait.
TEST_P(DriverContract, WorkBeforeAWaitDoesNotWait) {
  const auto busy = new_stream();
  const auto other = new_stream();
  const auto event = new_event();
  const auto before = new_event();
  const auto ptr = must(driver().mem_alloc(4_KiB));
  {
    Gate gate(driver(), busy);
    ASSERT_TRUE(driver().event_record(event, busy));
    ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 4_KiB, other));
    ASSERT_TRUE(driver().event_record(before, other));
    ASSERT_TRUE(driver().stream_wait_event(other, event));

    EXPECT_TRUE(driver().event_synchronize(before));
    EXPECT_FALSE(gate.is_done());
  }
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuStreamWaitEvent uses the state at the time of the call, and is not affected by
// later records.
TEST_P(DriverContract, AWaitKeepsWhatTheEventHeldThen) {
  const auto busy = new_stream();
  const auto other = new_stream();
  const auto event = new_event();
  const auto ptr = must(driver().mem_alloc(4_KiB));
  ASSERT_TRUE(driver().event_record(event, busy));
  ASSERT_TRUE(driver().stream_wait_event(other, event));
  {
    Gate gate(driver(), busy);
    ASSERT_TRUE(driver().event_record(event, busy));

    ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 4_KiB, other));
    EXPECT_TRUE(driver().stream_synchronize(other));
    EXPECT_FALSE(gate.is_done());
  }
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: a wait is for the work that was captured, which goes on without the event being
// reused.
TEST_P(DriverContract, AnEventRecordedAgainDoesNotEndAWait) {
  const auto busy = new_stream();
  const auto other = new_stream();
  const auto event = new_event();
  Gate gate(driver(), busy);
  ASSERT_TRUE(driver().event_record(event, busy));
  ASSERT_TRUE(driver().stream_wait_event(other, event));

  ASSERT_TRUE(driver().event_record(event, new_stream()));

  EXPECT_FALSE(must(driver().stream_query(other)));
}

// Documented: cuEventDestroy does not block on completion of the event.
TEST_P(DriverContract, AnEventIsDestroyedBeforeItIsDone) {
  const auto busy = new_stream();
  const auto event = must(driver().event_create());
  Gate gate(driver(), busy);
  ASSERT_TRUE(driver().event_record(event, busy));

  EXPECT_TRUE(driver().event_destroy(event));
  EXPECT_FALSE(gate.is_done());
}

// Measured.
TEST_P(DriverContract, DestroyingAnEventDoesNotEndTheWaitsForIt) {
  const auto busy = new_stream();
  const auto other = new_stream();
  const auto event = must(driver().event_create());
  Gate gate(driver(), busy);
  ASSERT_TRUE(driver().event_record(event, busy));
  ASSERT_TRUE(driver().stream_wait_event(other, event));

  ASSERT_TRUE(driver().event_destroy(event));

  EXPECT_FALSE(must(driver().stream_query(other)));
  gate.open();
  EXPECT_TRUE(driver().stream_synchronize(other));
  EXPECT_TRUE(gate.is_done());
}

// Documented: order is transitive, since an event captures what its stream waits for.
TEST_P(DriverContract, OrderGoesThroughAThirdStream) {
  const auto first = new_stream();
  const auto second = new_stream();
  const auto third = new_stream();
  const auto one = new_event();
  const auto two = new_event();
  Gate gate(driver(), first);
  ASSERT_TRUE(driver().event_record(one, first));
  ASSERT_TRUE(driver().stream_wait_event(second, one));
  ASSERT_TRUE(driver().event_record(two, second));
  ASSERT_TRUE(driver().stream_wait_event(third, two));

  EXPECT_FALSE(must(driver().event_query(two)));
  EXPECT_FALSE(must(driver().stream_query(third)));
}

// Documented: any thread may use the context's streams and events.
TEST_P(DriverContract, AnEventOrdersTheStreamsOfTwoThreads) {
  const auto first = new_stream();
  const auto second = new_stream();
  const auto event = new_event();
  Gate gate(driver(), first);
  std::thread([&] { EXPECT_TRUE(driver().event_record(event, first)); }).join();

  ASSERT_TRUE(driver().stream_wait_event(second, event));
  EXPECT_FALSE(must(driver().stream_query(second)));
}

// Measured.
TEST_P(DriverContract, AStreamCanWaitForItself) {
  const auto stream = new_stream();
  const auto event = new_event();
  Gate gate(driver(), stream);
  ASSERT_TRUE(driver().event_record(event, stream));
  ASSERT_TRUE(driver().stream_wait_event(stream, event));

  gate.open();
  EXPECT_TRUE(driver().stream_synchronize(stream));
}

}  // namespace
}  // namespace emm
