#pragma once

#include <cstdint>

/// The CUresults that a bench answers with, or looks for in a manager's answers, as <cuda.h>
/// numbers them.
namespace emm::conformance {

inline constexpr std::int32_t kInvalidValue = 1;
inline constexpr std::int32_t kOutOfMemory = 2;
inline constexpr std::int32_t kNotInitialized = 3;  ///< CUDA returns this in a forked child.
inline constexpr std::int32_t kNotReady = 600;      ///< An event or a stream has work left.
/// A kernel has done harm: the context is lost, and every call after it fails.
inline constexpr std::int32_t kIllegalAddress = 700, kLaunchFailed = 719;
inline constexpr std::int32_t kContextIsDestroyed = 709;
inline constexpr std::int32_t kAlreadyRegistered = 712, kNotRegistered = 713;

}  // namespace emm::conformance
