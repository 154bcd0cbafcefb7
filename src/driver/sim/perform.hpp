#pragma once

#include <cstdint>

#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// Does the work of a stream, but for host functions, and says how long that takes a device, in
/// nanoseconds. Memory that is not there, or that the device may not touch, is a fault of the
/// context: every later call in it answers 700 until the context is reset.
std::uint64_t perform(SimPlatform& platform, Asker asker, const Work& work);

}  // namespace emm::sim
