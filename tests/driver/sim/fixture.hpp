#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/units.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {

/// A simulated machine, and its first device.
class SimTest : public testing::Test {
 protected:
  explicit SimTest(const SimOptions& options = {.capacity = 64_MiB}) : platform_(options) {
    reopen();
  }

  SimPlatform& platform() { return platform_; }
  Driver& driver() { return *device_.driver; }
  Runtime& runtime() { return *device_.runtime; }
  void reopen() { device_ = open(0); }
  OpenedDevice open(int ordinal) { return std::move(*platform_.open(ordinal)); }

  template <class T>
  static std::int32_t native(const Result<T>& result) {
    return result ? 0 : result.error().native;
  }
  std::uint32_t word_at(DevicePtr ptr) {
    std::uint32_t word = 0;
    EXPECT_TRUE(driver().memcpy_dtoh(std::as_writable_bytes(std::span(&word, 1)), ptr));
    return word;
  }

 private:
  SimPlatform platform_;
  OpenedDevice device_;
};

}  // namespace emm
