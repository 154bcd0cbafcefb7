#pragma once

#include <string>

#include "cli/load.hpp"
#include "inspect/recording.hpp"

namespace emm::cli {

/// As load_trace, for a look at the recording itself.
Result<inspect::Recording> load_recording(Console& console, const std::string& path,
                                          const LoadOptions& options);

}  // namespace emm::cli
