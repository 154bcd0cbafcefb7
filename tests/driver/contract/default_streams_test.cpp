#include <array>
#include <functional>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

// The streams that nobody makes: the legacy default stream, and each thread's own.
namespace emm {
namespace {

class DefaultStreams : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ptr_ = must(driver().mem_alloc(4_KiB));
  }
  void TearDown() override {
    if (ptr_) {
      EXPECT_TRUE(driver().mem_free(ptr_));
    }
    DriverContract::TearDown();
  }
  void put_work(StreamHandle stream) {
    EXPECT_TRUE(driver().memset_d8_async(ptr_, 7, 4_KiB, stream));
  }
  /// The calls whose work is the legacy default stream's, and that are done when they return.
  std::vector<std::function<Status()>> synchronous_calls() {
    return {[this] { return driver().memset_d8(ptr_, 1, 4_KiB); },
            [this] { return driver().memset_d32(ptr_, 1, 1_KiB); },
            [this] { return driver().memcpy_htod(ptr_, host_); },
            [this] { return driver().memcpy_dtoh(host_, ptr_); },
            [this] { return driver().memcpy_dtod(ptr_, ptr_ + 2_KiB, 2_KiB); }};
  }

 private:
  DevicePtr ptr_;
  std::array<std::byte, 4096> host_{};
};

// Documented: the legacy default stream waits for all blocking streams.
TEST_P(DefaultStreams, TheLegacyStreamWaitsForBlockingStreams) {
  const auto stream = new_stream(StreamKind::blocking);
  Gate gate(driver(), stream);

  put_work(kLegacyStream);
  EXPECT_FALSE(must(driver().stream_query(kLegacyStream)));

  gate.open();
  ASSERT_TRUE(driver().stream_synchronize(kLegacyStream));
  EXPECT_TRUE(gate.is_done());
}

// Documented: blocking streams wait for the legacy default stream.
TEST_P(DefaultStreams, BlockingStreamsWaitForTheLegacyStream) {
  const auto stream = new_stream(StreamKind::blocking);
  Gate gate(driver(), kLegacyStream);

  put_work(stream);
  EXPECT_FALSE(must(driver().stream_query(stream)));

  gate.open();
  ASSERT_TRUE(driver().stream_synchronize(stream));
  EXPECT_TRUE(gate.is_done());
}

// Documented: blocking streams have no order with each other but through the legacy one.
TEST_P(DefaultStreams, BlockingStreamsDoNotWaitForEachOther) {
  const auto busy = new_stream(StreamKind::blocking);
  const auto other = new_stream(StreamKind::blocking);
  Gate gate(driver(), busy);

  put_work(other);
  EXPECT_TRUE(driver().stream_synchronize(other));
  EXPECT_FALSE(gate.is_done());
}

// Documented: work of the legacy stream between two blocking streams orders them.
TEST_P(DefaultStreams, TheLegacyStreamOrdersBlockingStreams) {
  const auto busy = new_stream(StreamKind::blocking);
  const auto other = new_stream(StreamKind::blocking);
  Gate gate(driver(), busy);
  put_work(kLegacyStream);

  put_work(other);
  EXPECT_FALSE(must(driver().stream_query(other)));
}

// Documented: CU_STREAM_NON_BLOCKING: no synchronization with the legacy stream.
TEST_P(DefaultStreams, NonBlockingStreamsDoNotWaitForTheLegacyStream) {
  const auto stream = new_stream();
  Gate gate(driver(), kLegacyStream);

  put_work(stream);
  EXPECT_TRUE(driver().stream_synchronize(stream));
  EXPECT_FALSE(gate.is_done());
}

// Documented: the same, the other way.
TEST_P(DefaultStreams, TheLegacyStreamDoesNotWaitForNonBlockingStreams) {
  expect_does_not_wait([&] {
    put_work(kLegacyStream);
    EXPECT_TRUE(driver().stream_synchronize(kLegacyStream));
  });
}

// Documented: 0 is the legacy stream for a program built without per-thread default streams.
TEST_P(DefaultStreams, StreamZeroIsTheLegacyStream) {
  Gate gate(driver(), {});

  EXPECT_FALSE(must(driver().stream_query(kLegacyStream)));
}

// Documented: CU_STREAM_PER_THREAD is another stream on each thread.
TEST_P(DefaultStreams, EachThreadHasADefaultStreamOfItsOwn) {
  std::unique_ptr<Gate> gate;
  std::thread([&] { gate = std::make_unique<Gate>(driver(), kPerThreadStream); }).join();

  put_work(kPerThreadStream);
  EXPECT_TRUE(driver().stream_synchronize(kPerThreadStream));
  EXPECT_FALSE(gate->is_done());
}

// Documented: the per-thread default stream is a blocking stream.
TEST_P(DefaultStreams, TheLegacyStreamWaitsForEveryThreadsStream) {
  std::unique_ptr<Gate> gate;
  std::thread([&] { gate = std::make_unique<Gate>(driver(), kPerThreadStream); }).join();

  put_work(kLegacyStream);
  EXPECT_FALSE(must(driver().stream_query(kLegacyStream)));
}

// Documented: the same, the other way.
TEST_P(DefaultStreams, AThreadsStreamWaitsForTheLegacyStream) {
  Gate gate(driver(), kLegacyStream);

  put_work(kPerThreadStream);
  EXPECT_FALSE(must(driver().stream_query(kPerThreadStream)));
}

// Documented: cuEventRecord: in the default case an event of the legacy stream captures the
// blocking streams' work too.
TEST_P(DefaultStreams, AnEventOnTheLegacyStreamHoldsBlockingStreamsWork) {
  const auto event = new_event();
  Gate gate(driver(), new_stream(StreamKind::blocking));

  ASSERT_TRUE(driver().event_record(event, kLegacyStream));
  EXPECT_FALSE(must(driver().event_query(event)));
}

// Measured.
TEST_P(DefaultStreams, AskingTheLegacyStreamAsksForBlockingStreamsToo) {
  Gate gate(driver(), new_stream(StreamKind::blocking));

  EXPECT_FALSE(must(driver().stream_query(kLegacyStream)));
}

// Measured.
TEST_P(DefaultStreams, SynchronizingTheLegacyStreamWaitsForBlockingStreams) {
  Gate gate(driver(), new_stream(StreamKind::blocking));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.open();
  });

  EXPECT_TRUE(driver().stream_synchronize(kLegacyStream));
  EXPECT_TRUE(gate.is_done());
  opener.join();
}

// Documented: a synchronous copy or fill is the legacy default stream's work.
TEST_P(DefaultStreams, SynchronousCopiesAndFillsWaitForBlockingStreams) {
  for (const auto& call : synchronous_calls()) {
    Gate gate(driver(), new_stream(StreamKind::blocking));
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      gate.open();
    });
    EXPECT_TRUE(call());
    EXPECT_TRUE(gate.is_done());
    opener.join();
  }
}

// Documented: the same.
TEST_P(DefaultStreams, SynchronousCopiesAndFillsDoNotWaitForNonBlockingStreams) {
  for (const auto& call : synchronous_calls()) expect_does_not_wait([&] { EXPECT_TRUE(call()); });
}

INSTANTIATE_TEST_SUITE_P(EveryDevice, DefaultStreams, testing::Values("sim", "cuda"), name_of_kind);

}  // namespace
}  // namespace emm
