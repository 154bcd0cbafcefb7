#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

// Documented: cuStreamQuery is success where all operations of the stream have completed.
TEST_P(DriverContract, AStreamWithoutWorkIsDone) {
  EXPECT_TRUE(must(driver().stream_query(new_stream())));
}

// Documented: cuStreamQuery answers CUDA_ERROR_NOT_READY until then.
TEST_P(DriverContract, WorkOnAStreamIsPendingUntilItIsDone) {
  const auto stream = new_stream();
  Gate gate(driver(), stream);
  EXPECT_FALSE(must(driver().stream_query(stream)));

  gate.open();

  ASSERT_TRUE(driver().stream_synchronize(stream));
  EXPECT_TRUE(gate.is_done());
  EXPECT_TRUE(must(driver().stream_query(stream)));
}

// Documented: cuStreamQuery asks for the status, and work goes on without being waited for.
TEST_P(DriverContract, AskingLongEnoughSeesWorkDone) {
  const auto stream = new_stream();
  const auto ptr = must(driver().mem_alloc(1_MiB));
  ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 1_MiB, stream));

  EXPECT_TRUE(comes_true([&] { return driver().stream_query(stream); }));
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: a stream is a queue; cuLaunchHostFunc: after what is enqueued, before what is added
// after.
TEST_P(DriverContract, WorkOnOneStreamIsDoneInOrder) {
  struct Step {
    std::vector<int>* done;
    int number;
  };
  const auto stream = new_stream();
  std::vector<int> done;
  Step steps[] = {{&done, 1}, {&done, 2}, {&done, 3}};
  for (auto& step : steps) {
    ASSERT_TRUE(driver().launch_host_func(
        stream,
        [](void* argument) {
          const auto* at = static_cast<Step*>(argument);
          at->done->push_back(at->number);
        },
        &step));
  }

  ASSERT_TRUE(driver().stream_synchronize(stream));
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3}));
}

// Documented: cuLaunchHostFunc: the function will block work added after it.
TEST_P(DriverContract, WorkAfterAHostFunctionWaitsForIt) {
  const auto stream = new_stream();
  const auto event = new_event();
  const auto ptr = must(driver().mem_alloc(4_KiB));
  Gate gate(driver(), stream);

  ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 4_KiB, stream));
  ASSERT_TRUE(driver().event_record(event, stream));
  EXPECT_FALSE(must(driver().event_query(event)));

  gate.open();
  ASSERT_TRUE(driver().event_synchronize(event));
  EXPECT_EQ(byte_at(ptr), 7);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: non-blocking streams have no order with each other.
TEST_P(DriverContract, SynchronizingAStreamDoesNotWaitForOthers) {
  const auto other = new_stream();
  const auto ptr = must(driver().mem_alloc(4_KiB));
  expect_does_not_wait([&] {
    EXPECT_TRUE(driver().memset_d8_async(ptr, 7, 4_KiB, other));
    EXPECT_TRUE(driver().stream_synchronize(other));
  });
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuCtxSynchronize blocks until all preceding tasks of the context have completed.
TEST_P(DriverContract, SynchronizingTheContextWaitsForEveryStream) {
  expect_waits([&] { EXPECT_TRUE(driver().ctx_synchronize()); });
}

// Documented: cuStreamDestroy returns at once, and its resources go when the work is done.
TEST_P(DriverContract, WorkOfADestroyedStreamIsStillDone) {
  const auto stream = must(driver().stream_create(StreamKind::non_blocking));
  const auto ptr = must(driver().mem_alloc(4_KiB));
  ASSERT_TRUE(driver().memset_d8(ptr, 0, 4_KiB));
  {
    Gate gate(driver(), stream);
    ASSERT_TRUE(driver().memset_d8_async(ptr, 7, 4_KiB, stream));

    EXPECT_TRUE(driver().stream_destroy(stream));
    EXPECT_FALSE(gate.is_done());

    gate.open();
    ASSERT_TRUE(driver().ctx_synchronize());
  }
  EXPECT_EQ(byte_at(ptr), 7);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuMemcpyDtoDAsync and cuMemsetD8Async are the stream's work.
TEST_P(DriverContract, CopiesOnAStreamSeeWhatItWroteBefore) {
  const auto stream = new_stream();
  const auto from = must(driver().mem_alloc(1_MiB));
  const auto to = must(driver().mem_alloc(1_MiB));

  ASSERT_TRUE(driver().memset_d8_async(from, 5, 1_MiB, stream));
  ASSERT_TRUE(driver().memcpy_dtod_async(to, from, 1_MiB, stream));
  ASSERT_TRUE(driver().memset_d8_async(from, 6, 1_MiB, stream));
  ASSERT_TRUE(driver().stream_synchronize(stream));

  EXPECT_EQ(byte_at(to + (1_MiB - 1)), 5);
  EXPECT_EQ(byte_at(from), 6);
  EXPECT_TRUE(driver().mem_free(from));
  EXPECT_TRUE(driver().mem_free(to));
}

// Measured.
TEST_P(DriverContract, FillingOrCopyingNothingOnAStreamSucceeds) {
  const auto stream = new_stream();
  const auto ptr = must(driver().mem_alloc(4_KiB));

  EXPECT_EQ(native(driver().memset_d8_async(ptr, 7, 0, stream)), 0);
  EXPECT_EQ(native(driver().memcpy_dtod_async(ptr, ptr + 512, 0, stream)), 0);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured.
TEST_P(DriverContract, FillingAnUnknownAddressOnAStreamIsAnInvalidValue) {
  const auto stream = new_stream();

  EXPECT_EQ(native(driver().memset_d8_async(kUnknown, 7, 4_KiB, stream)), 1);
  EXPECT_TRUE(driver().stream_synchronize(stream));
}

}  // namespace
}  // namespace emm
