#pragma once

#include <functional>
#include <memory>

#include "allocators/pool_model.hpp"
#include "managers/host_only.hpp"

namespace emm {

/// Makes a model over this memory. Called at the first need, and after a reset at the next.
using MakeModel =
    std::function<std::unique_ptr<allocators::PoolModel>(allocators::DeviceMemory& memory)>;

/// The manager whose device memory a model of another library's pool serves. Host memory and
/// managed memory are those of the host-only manager. Any thread may call.
std::unique_ptr<MemoryManager> make_model_manager(const ManagerContext& context,
                                                  const HostOnlyManager::Settings& host,
                                                  MakeModel make);

}  // namespace emm
