#include "driver/sim/sim_runtime.hpp"

#include "driver/call.hpp"
#include "driver/sim/free_memory.hpp"

namespace emm {

using sim::Answer;

Result<DevicePtr> SimRuntime::malloc(std::uint64_t size) {
  if (size != 0) return platform_.conclude(Call::runtime_malloc, device_.mem_alloc(context_, size));
  return platform_.conclude(Call::runtime_malloc,
                            Answer<DevicePtr>{.native = device_.state(context_)});
}

Status SimRuntime::free(DevicePtr ptr) {
  return platform_.conclude(Call::runtime_free,
                            sim::free_memory(platform_, {device_.ordinal(), context_}, ptr));
}

Result<MemoryInfo> SimRuntime::mem_get_info() {
  return platform_.conclude(Call::runtime_get_info, device_.mem_get_info(context_));
}

}  // namespace emm
