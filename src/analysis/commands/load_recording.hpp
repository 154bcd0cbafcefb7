#pragma once

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// Reads a recording like load_trace(), with everything that inspect shows. `also`, if given, gets
/// the same operations. `opened`, if given, is the file, of which nothing is consumed yet.
Result<inspect::Recording> load_recording(Console& console, const TraceArgument& argument,
                                          trace::OperationSink* also = nullptr,
                                          std::unique_ptr<format::ByteSource> opened = nullptr);
/// Says how many call stacks the recording has only in part, if any.
void say_cut_stacks(Console& console, const inspect::Recording& recording);

}  // namespace emm::cli
