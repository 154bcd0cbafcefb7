#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "allocators/pool_model.hpp"
#include "managers/host_cache.hpp"
#include "managers/host_only.hpp"

namespace emm {

/// Makes a model over this memory. Called at the first need, and after a reset at the next.
using MakeModel =
    std::function<std::unique_ptr<allocators::PoolModel>(allocators::DeviceMemory& memory)>;

/// The manager whose device memory a model of another library's pool serves. Managed memory is that
/// of the host-only manager, and so is host memory where it is not to be cached as `cache` says.
/// Any thread may call.
std::unique_ptr<MemoryManager> make_model_manager(const ManagerContext& context,
                                                  const HostOnlyManager::Settings& host,
                                                  MakeModel make,
                                                  std::optional<HostCache::Settings> cache = {});

}  // namespace emm
