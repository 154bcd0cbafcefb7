#pragma once

#include "emm/manager_entry.hpp"

namespace emm::replay {

/// A manager that does nothing, for measuring the engine around it. It hands out addresses that no
/// device has, each thread from a range of its own, and forgets what is freed.
ManagerFactory null_manager();

}  // namespace emm::replay
