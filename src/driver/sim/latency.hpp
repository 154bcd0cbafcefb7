#pragma once

#include <cstdint>

#include "driver/types.hpp"

namespace emm::sim {

/// Answers what a call would have taken on an H200, in nanoseconds: measured medians (driver
/// 580.159.04, CUDA 13.0), interpolated between the measured sizes. `size` is in bytes, 0 where the
/// call has none. `native` is the answer of the call.
std::uint64_t latency_ns(Call call, std::uint64_t size, std::int32_t native) noexcept;

/// Answers how long a device is busy with a fill (memset_d8) or a copy (memcpy_dtod) of `size`
/// bytes, in nanoseconds. A model: a constant, and the bandwidth of an H200's memory.
std::uint64_t work_ns(Call call, std::uint64_t size) noexcept;

}  // namespace emm::sim
