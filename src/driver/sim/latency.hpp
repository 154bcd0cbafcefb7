#pragma once

#include <cstdint>

#include "driver/types.hpp"

namespace emm::sim {

/// What a call would have taken on an H200, in nanoseconds: measured medians (driver 580.159.04,
/// CUDA 13.0), on straight lines between the sizes that were measured. `size` is in bytes, 0 where
/// the call has none; `native` is the answer.
std::uint64_t latency_ns(Call call, std::uint64_t size, std::int32_t native) noexcept;

/// What a device is busy for with a fill (memset_d8) or a copy (memcpy_dtod) of `size` bytes, in
/// nanoseconds. A model: the bandwidth of an H200's memory, and a start.
std::uint64_t work_ns(Call call, std::uint64_t size) noexcept;

}  // namespace emm::sim
