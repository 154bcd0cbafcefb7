#pragma once

#include <string>

#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::log {

/// Draws live and reserved bytes over the events of the first pass of a replay as one SVG, with the
/// device's capacity (0: not known), the peak that the recorded manager reserved (0: not known),
/// and the first failure.
std::string replay_picture(const log::Summary& summary, const trace::Trace& trace,
                           std::uint64_t capacity, std::uint64_t recorded);

}  // namespace emm::log
