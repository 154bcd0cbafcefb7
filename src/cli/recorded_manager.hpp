#pragma once

#include <memory>

#include "cli/load.hpp"
#include "emm/manager_entry.hpp"

namespace emm::cli {

/// `--manager recorded` repeats each driver call of a recording: cuMemAlloc, cuMemAllocAsync,
/// cuMemAllocFromPoolAsync or cuMemCreate for a request, the call that freed it, and the calls in
/// between for pools, reserved addresses and mappings. So on a device of the recording's capacity,
/// a replay refuses what was refused and holds at its peak what was held. It needs a replay in the
/// order of the trace by one thread. If the requests went to a manager whose driver calls are not
/// recorded, each request is a cuMemAlloc.
///
/// It reads the trace a second time, so standard input is a usage error.
Result<ManagerFactory> recorded_manager(const TraceArgument& argument);

}  // namespace emm::cli
