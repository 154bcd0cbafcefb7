#pragma once

#include <memory>
#include <string_view>

#include "driver/device_entry.hpp"

namespace emm {

/// Opens the real devices with a libcuda that it looks for now. `options` is empty for all devices,
/// or the number of the first of `defaults.devices`; the machine may have fewer from there on.
/// Fails with no_device without a driver, without a device, or in a build that had no CUDA toolkit.
Result<std::unique_ptr<Platform>> open_cuda_platform(std::string_view options,
                                                     const DeviceDefaults& defaults);

}  // namespace emm
