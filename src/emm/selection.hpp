#pragma once

#include <optional>

#include "base/result.hpp"
#include "emm/manager_entry.hpp"

namespace emm {

/// Which manager contexts made from now on get: one setting for the process (SEL-1). Contexts that
/// exist keep theirs (SEL-6). Any thread may call.
///
/// Probes the factory without a device, and refuses another interface version in numba's words,
/// "EMM Plugin interface has version 2 - version 1 required", leaving the setting as it was
/// (SEL-3).
Status set_memory_manager(ManagerFactory factory);

/// What was set; else what EMM_MEMORY_MANAGER names, read at the first call and then remembered;
/// else `default` (SEL-2, SEL-10). Any failure of the variable is "Failed to use memory manager
/// from <value>: <why>", and the next call tries again (SEL-11; numba loses the why). A manager
/// that was set wins over the variable, and says nothing (SEL-12, as numba's code; NBEP-7's text
/// would ignore the call).
Result<ManagerFactory> get_memory_manager();

/// Forgets what was set and what the variable gave; the next get reads it again.
void unset_memory_manager() noexcept;

}  // namespace emm
