#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"
#include "cli/load.hpp"

namespace emm::cli {

/// Answers for a file that has figures and no events (inspect::Statistics), of any command that
/// describes a file. Nothing, if the file is a trace or unknown: the command then goes on.
Result<std::optional<ExitCode>> answer_statistics(Console& console, const TraceArgument& argument,
                                                  const std::string& json, std::uint64_t top,
                                                  bool more = true);

/// Answers what differs between two such files. Fails where only one of them is such.
Result<std::optional<ExitCode>> answer_statistics(Console& console, const TraceArgument& before,
                                                  const TraceArgument& after,
                                                  const std::string& json, std::uint64_t top);

/// Answers whether the file is a log that has such figures, and also tells of a failure.
Result<bool> tells_of_failure(const TraceArgument& argument);

}  // namespace emm::cli
