#pragma once

#include <memory>

#include "cli/load.hpp"
#include "emm/manager_entry.hpp"

namespace emm::cli {

/// `--manager recorded`: makes each driver call of a recording as it was made: cuMemAlloc,
/// cuMemAllocAsync, cuMemAllocFromPoolAsync or cuMemCreate for a request, and what ended it; pools,
/// reserved addresses and mappings where they were made in between. So a replay on a device of the
/// recording's capacity refuses what was refused, and holds at its peak what was held. For replays
/// in the order of the trace, by one thread. Where a manager of another kind of recording made the
/// requests, its driver calls are not known: each request is a cuMemAlloc then.
///
/// Reads the trace again, so it cannot be standard input: a usage error.
Result<ManagerFactory> recorded_manager(const TraceArgument& argument);

}  // namespace emm::cli
