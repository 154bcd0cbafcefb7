#pragma once

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// Reads a recording like load_trace(), with everything that inspect shows. `also`, if given, gets
/// the same operations.
Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument,
                                          trace::OperationSink* also = nullptr);

}  // namespace emm::cli
