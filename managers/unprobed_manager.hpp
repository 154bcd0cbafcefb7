#pragma once

#include <span>
#include <string>
#include <string_view>

#include "emm/manager_entry.hpp"

namespace emm {

/// As find_manager(), but that the options are first looked at when a manager is made: a foreign
/// manager is called for nothing else.
Result<ManagerFactory> unprobed_manager(std::string_view spec,
                                        std::span<const std::string> adaptors = {});

}  // namespace emm
