#pragma once

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

/// cuMemFree and cudaFree of any address, asked for in a context of `asker`'s. Waits for all work
/// of the device whose memory it is, and of the asker's where it is memory of the host (measured);
/// stream-ordered memory, null and a wrong address wait for nothing.
Answer<Nothing> free_memory(SimPlatform& platform, Asker asker, DevicePtr ptr);

}  // namespace emm::sim
