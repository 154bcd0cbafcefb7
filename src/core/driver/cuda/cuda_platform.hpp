#pragma once

#include <memory>
#include <string_view>

#include "driver/device_entry.hpp"

namespace emm {

/// Finds libcuda and opens the real devices. `options` is empty for all devices, or the number of
/// the first of `defaults.devices` devices; the machine may have fewer. Error no_device without a
/// driver, without a device, or in a build without the CUDA toolkit.
Result<std::unique_ptr<Platform>> open_cuda_platform(std::string_view options,
                                                     const DeviceDefaults& defaults);

}  // namespace emm
