#include "emm/memory_manager.hpp"

#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"

void std::default_delete<emm::MemoryManager>::operator()(
    emm::MemoryManager* manager) const noexcept {
  delete manager;
}

namespace emm {

Result<ManagedMemory> MemoryManager::memallocmanaged(std::uint64_t, AttachFlags) {
  return Error{.code = Errc::not_supported};
}

MemoryStatistics MemoryManager::statistics() const { return {}; }

std::optional<MemoryMap> MemoryManager::memory_map() const { return std::nullopt; }

}  // namespace emm
