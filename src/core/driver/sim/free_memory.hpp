#pragma once

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

/// cuMemFree and cudaFree of any address, called in a context of `asker`. Waits for all work of the
/// device that owns the memory, or of the asker's device for host memory (measured). Does not wait
/// for stream-ordered memory, null or a wrong address.
Answer<Nothing> free_memory(SimPlatform& platform, Asker asker, DevicePtr ptr);

}  // namespace emm::sim
