#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/load.hpp"
#include "trace/operation.hpp"

namespace emm::cli {

/// Is it a trace of which so much more than the file is in memory that it is better read again and
/// again? Only a file can be.
bool is_for_passes(const TraceArgument& argument);

/// Reads one trace from its beginning to its end each time it is called, and shows which time it is
/// and how far it is. What is to be said of the file it says the first time. Both outlive it.
std::function<Status(trace::OperationSink&)> passes(Console& console,
                                                    const TraceArgument& argument);

/// Says that a trace is read whole, since `why`, where it may be too large for that.
void say_in_memory(Console& console, const TraceArgument& argument, std::string_view why);

}  // namespace emm::cli
