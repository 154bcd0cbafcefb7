#pragma once

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// Reads a recording as load_trace() does, with all that inspect shows of it.
/// `also`, where it is given, takes the same operations.
Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument,
                                          trace::OperationSink* also = nullptr);

}  // namespace emm::cli
