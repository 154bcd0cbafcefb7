#pragma once

#include <optional>

#include "base/result.hpp"
#include "emm/manager_entry.hpp"

namespace emm {

/// Sets the manager of all contexts made from now on, for the whole process (SEL-1). Existing
/// contexts keep theirs (SEL-6). Any thread may call.
///
/// Probes the factory without a device. Another interface version is refused in numba's words, "EMM
/// Plugin interface has version 2 - version 1 required", and the setting does not change (SEL-3).
Status set_memory_manager(ManagerFactory factory);

/// The manager that was set; else the one that EMM_MEMORY_MANAGER names, read once and kept; else
/// `default` (SEL-2, SEL-10). If the variable fails, the error is "Failed to use memory manager
/// from <value>: <why>", and the next call tries again (SEL-11; numba loses the why). A manager
/// that was set silently wins over the variable (SEL-12, like numba's code; NBEP-7's text would
/// ignore the call).
Result<ManagerFactory> get_memory_manager();

/// Forgets the manager that was set or that the variable gave. The next get reads the variable
/// again.
void unset_memory_manager() noexcept;

}  // namespace emm
