#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "driver/device_entry.hpp"

namespace emm {

/// What every device answers: one suite, run on each kind of device that this machine has. A test
/// is one fact, with its source: "measured" is an H200 with driver 580.159.04 and CUDA 13.0.
class DriverContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;

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

 private:
  std::unique_ptr<Platform> platform_;
  OpenedDevice device_;
};

/// An address that no allocation has.
inline constexpr DevicePtr kUnknown{0x1234560000};

}  // namespace emm
