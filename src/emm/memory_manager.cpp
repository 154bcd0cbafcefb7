#include "emm/memory_manager.hpp"

namespace emm {

Result<ManagedMemory> MemoryManager::memallocmanaged(std::uint64_t, AttachFlags) {
  return Error{.code = Errc::not_supported};
}

}  // namespace emm
