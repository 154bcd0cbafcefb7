#pragma once

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// As load_trace, for a look at the recording itself.
Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument);

}  // namespace emm::cli
