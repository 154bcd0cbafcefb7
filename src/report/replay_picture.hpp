#pragma once

#include <string>

#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::report {

/// What was live and what the manager reserved in the first pass of a replay, over its events, as
/// one SVG: with the capacity `capacity` of the device (0: not known), the peak that the recorded
/// manager reserved (0: not known), and where the first failure happened.
std::string replay_picture(const log::Summary& summary, const trace::Trace& trace,
                           std::uint64_t capacity, std::uint64_t recorded);

}  // namespace emm::report
