#pragma once

#include "emm/manager_entry.hpp"

namespace emm::replay {

/// A manager that does nothing, to measure the engine around it. It hands out addresses that no
/// device has, from a separate range for each thread, and ignores frees.
ManagerFactory null_manager();

}  // namespace emm::replay
