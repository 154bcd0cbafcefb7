#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "contract/gate.hpp"
#include "driver/device_entry.hpp"

namespace emm {

/// What every device answers: one suite, run on each kind of device that this machine has. A test
/// is one fact, and the comment above it is its source, which tools/driver_contract.py puts into
/// docs/driver-contract.md. "Measured" is an H200 with driver 580.159.04 and CUDA 13.0.
class DriverContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Driver& driver() { return *device_.driver; }
  /// The native code of an answer, 0 of success.
  template <class T>
  static std::int32_t native(const Result<T>& result) {
    return result ? 0 : result.error().native;
  }
  /// The value of what has to succeed for a test to mean anything.
  template <class T>
  static T must(const Result<T>& result) {
    if (!result) ADD_FAILURE() << describe(result.error());
    return result ? *result : T{};
  }
  /// Null where there is no cudart.
  Runtime* runtime() { return device_.runtime.get(); }
  Platform& platform() { return *platform_; }
  void reopen();
  /// Other devices instead: "sim:devices=2".
  void reopen(const char* spec);

  /// Destroyed at the test's end.
  StreamHandle new_stream(StreamKind kind = StreamKind::non_blocking);
  EventHandle new_event();
  std::uint8_t byte_at(DevicePtr ptr);
  std::uint64_t free_bytes() { return must(driver().mem_get_info()).free; }
  /// True as soon as `ask` answers true; false if it does not in very many questions.
  template <class Ask>
  bool comes_true(Ask ask) {
    for (int i = 0; i < 200'000; ++i) {
      if (must(ask())) return true;
      std::this_thread::yield();
    }
    return false;
  }
  /// `call` comes back while work on some other, non-blocking stream goes on.
  template <class MakeCall>
  void expect_does_not_wait(MakeCall call) {
    Gate gate(driver(), new_stream());
    call();
    EXPECT_FALSE(gate.is_done()) << "it waited for work on another stream";
  }
  /// `call` comes back only when the work on another, non-blocking stream is done.
  template <class MakeCall>
  void expect_waits(MakeCall call) {
    Gate gate(driver(), new_stream());
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      gate.open();
    });
    call();
    EXPECT_TRUE(gate.is_done()) << "it did not wait for work on another stream";
    opener.join();
  }

 private:
  std::unique_ptr<Platform> platform_;
  OpenedDevice device_;
  std::vector<StreamHandle> streams_;
  std::vector<EventHandle> events_;
};

inline std::string name_of_kind(const testing::TestParamInfo<const char*>& kind) {
  return kind.param;
}

/// An address that no allocation has.
inline constexpr DevicePtr kUnknown{0x1234560000};

}  // namespace emm
