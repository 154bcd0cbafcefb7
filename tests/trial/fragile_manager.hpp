#pragma once

#include "emm/manager_entry.hpp"

namespace emm::trial {

/// Its managers are host-only, and kill the process at a request of 7 bytes while two others are
/// live.
ManagerFactory fragile_manager();

}  // namespace emm::trial
