#pragma once

#include <cstdint>

#include "driver/call.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// The nanoseconds that a call takes on an H200: measured medians (driver 580.159.04, CUDA 13.0),
/// interpolated between the measured sizes. `size` is in bytes; 0 if the call has none. `native` is
/// the call's result.
std::uint64_t latency_ns(Call call, std::uint64_t size, std::int32_t native) noexcept;

/// The nanoseconds that a device is busy with a fill (memset_d8) or a copy (memcpy_dtod) of `size`
/// bytes. A model of a constant plus the bandwidth of an H200's memory.
std::uint64_t work_ns(Call call, std::uint64_t size) noexcept;

}  // namespace emm::sim
