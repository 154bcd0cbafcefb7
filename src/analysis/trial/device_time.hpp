#pragma once

#include <cstdint>

#include "allocators/pytorch/program.hpp"

namespace emm::trial {

/// Returns the nanoseconds that a call of PyTorch's allocator takes, by the model of an H200 that
/// the simulated device has.
std::uint64_t device_ns(const allocators::pytorch::DeviceCall& call) noexcept;

}  // namespace emm::trial
