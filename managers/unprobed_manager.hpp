#pragma once

#include <span>
#include <string>
#include <string_view>

#include "emm/manager_entry.hpp"

namespace emm {

/// Like find_manager(), but checks the options only when a manager is made, so that no code of a
/// foreign manager runs before.
Result<ManagerFactory> unprobed_manager(std::string_view spec,
                                        std::span<const std::string> adaptors = {});

}  // namespace emm
