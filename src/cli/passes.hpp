#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/load.hpp"
#include "trace/operation_sink.hpp"

namespace emm::cli {

/// Would the trace take so much more memory than its file that reading it several times is better?
/// Only a file can be read again.
bool is_for_passes(const TraceArgument& argument);

/// Returns a function that reads the whole trace at each call, and shows progress and the number of
/// the pass. The first pass reports what is to be said about the file. Both arguments must outlive
/// it.
std::function<Status(trace::OperationSink&)> passes(Console& console,
                                                    const TraceArgument& argument);

/// Warns that a trace is read into memory because of `why`, although it may be too large.
void say_in_memory(Console& console, const TraceArgument& argument, std::string_view why);

}  // namespace emm::cli
