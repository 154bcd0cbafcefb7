#pragma once

#include <string>

#include "base/result.hpp"
#include "exchange/importer.hpp"

namespace emm::trace {

/// Merges two recordings of one process into one trace. `requests` has what frameworks asked for;
/// its operations have `seq` and `x-request`. `calls` has the driver calls that `emmctl record`
/// wrote; they go into the layer `backing` and name their request as `parent`. Both recordings took
/// their `seq` from one counter. Holds both as text. The counts returned are those of `calls`.
Result<ImportCounts> merge_levels(const std::string& requests, const std::string& calls,
                                  OperationSink& sink);

/// The same for PyTorch's history, whose operations have no `seq` in common with the calls. The
/// calls that gave memory at the addresses of a segment stand where the history has that segment,
/// and name as `parent` the next request that got memory of it. All other calls are placed by the
/// clock. The history's segments are left out, and an id such as 1 of the history becomes "q1".
/// parse_error if no segment is among the calls.
Result<ImportCounts> merge_history(const std::string& history, const std::string& calls,
                                   OperationSink& sink);

}  // namespace emm::trace
