#pragma once

#include <cstdint>

namespace emm::sim {

/// The CUresults that a simulated device gives.
enum Native : std::int32_t {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kPeerAccessUnsupported = 217,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kContextDestroyed = 709,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
};

/// A device's answer to a call: a code, the value on success, the bytes on which the cost of the
/// call depends, and an extra cost.
template <class T>
struct Answer {
  std::int32_t native = kSuccess;
  T value{};
  std::uint64_t size = 0;
  std::uint64_t extra_ns = 0;
};
struct Nothing {};

}  // namespace emm::sim
