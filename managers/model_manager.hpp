#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "allocators/pool_model.hpp"
#include "managers/host_cache.hpp"
#include "managers/host_only.hpp"

namespace emm {

/// Makes a model over `memory`. Called at the first request, and at the first after each reset.
using MakeModel =
    std::function<std::unique_ptr<allocators::PoolModel>(allocators::DeviceMemory& memory)>;

/// A manager whose device memory comes from a model of another library's pool. HostOnlyManager
/// serves managed memory, and host memory too unless `cache` is given. Any thread may call.
std::unique_ptr<MemoryManager> make_model_manager(const ManagerContext& context,
                                                  const HostOnlyManager::Settings& host,
                                                  MakeModel make,
                                                  std::optional<HostCache::Settings> cache = {});

}  // namespace emm
