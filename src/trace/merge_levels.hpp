#pragma once

#include <string>

#include "base/result.hpp"
#include "trace/importer.hpp"

namespace emm::trace {

/// Makes one trace of two recordings of a process: `requests`, what frameworks asked for, whose
/// operations have `seq` and `x-request`, and `calls`, what `emmctl record` left of the driver's
/// calls, which go into the layer `backing` and name their request as `parent`. Both took their
/// `seq` from one counter. Holds both as text. The counts are those of the calls.
Result<ImportCounts> merge_levels(const std::string& requests, const std::string& calls,
                                  OperationSink& sink);

/// The same of PyTorch's history, whose operations have no place among the calls: a segment of it
/// is the calls that gave memory at its addresses, in the order of both, and was taken for the next
/// request that got memory of it. Other calls stand where the clock says. The history's segments
/// are left out, its ids 1 are "q1". parse_error where no segment is among the calls.
Result<ImportCounts> merge_history(const std::string& history, const std::string& calls,
                                   OperationSink& sink);

}  // namespace emm::trace
