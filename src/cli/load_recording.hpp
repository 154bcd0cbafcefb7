#pragma once

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// Reads a recording as load_trace() does, with all that inspect shows of it.
Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument);

}  // namespace emm::cli
