#pragma once

#include <string>

#include "trial/compare.hpp"

namespace emm::trial {

/// Writes a table of the managers, and how each failed, for a person. REQUIRES: not interrupted.
std::string to_text(const Comparison& comparison, const trace::Trace& trace, int width,
                    bool all_frames = false);
/// "emmctl.compare/2"
std::string to_json(const Comparison& comparison, const trace::Trace& trace);

}  // namespace emm::trial
