#pragma once

#include <string>

#include "emm/memory_manager.hpp"

namespace emm::libemm {

/// The state of `manager`, to end the message of a request that found no memory: "; live 1.00 MiB,
/// reserved 4.00 MiB, ..."; what it does not know is left out.
std::string shortage(const MemoryManager& manager);

}  // namespace emm::libemm
