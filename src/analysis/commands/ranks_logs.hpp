#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"

namespace emm::cli {

/// Are all files logs: texts that are no recordings?
bool are_logs(const std::vector<std::string>& files);

/// For `emmctl ranks` of logs: which ranks ran out of memory, with what. `json` is where the JSON
/// goes, empty if nowhere. Inconclusive if no log has an out-of-memory message.
Result<ExitCode> ranks_of_logs(Console& console, const std::vector<std::string>& files,
                               const std::string& json, bool more);

}  // namespace emm::cli
