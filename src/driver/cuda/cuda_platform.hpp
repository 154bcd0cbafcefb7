#pragma once

#include <memory>
#include <string_view>

#include "driver/device_entry.hpp"

namespace emm {

/// The real devices, by a libcuda that is looked for now. `options` is empty, for all of them, or
/// the number of the first of `defaults.devices`; the machine may have fewer from there on. Fails
/// with no_device without a driver, without a device, or in a build that had no CUDA toolkit.
Result<std::unique_ptr<Platform>> open_cuda_platform(std::string_view options,
                                                     const DeviceDefaults& defaults);

}  // namespace emm
