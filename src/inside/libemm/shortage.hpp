#pragma once

#include <string>

#include "emm/memory_manager.hpp"

namespace emm::libemm {

/// Describes the state of `manager` for the message of a request that found no memory: "; live 1.00
/// MiB, reserved 4.00 MiB, ...". Leaves out what the manager does not know.
std::string shortage(const MemoryManager& manager);

}  // namespace emm::libemm
