#pragma once

#include <cstdint>

#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// Does work of a stream, except host functions, and returns the nanoseconds that it takes a
/// device. Access to memory that does not exist or that the device may not use is a fault of the
/// context: every later call in it returns 700 until the context is reset.
std::uint64_t perform(SimPlatform& platform, Asker asker, const Work& work);

}  // namespace emm::sim
