#include "driver/sim/sim_runtime.hpp"

namespace emm {

using sim::Answer;
using sim::Nothing;

Result<DevicePtr> SimRuntime::malloc(std::uint64_t size) {
  if (size != 0) return platform_.conclude(Call::runtime_malloc, device_.mem_alloc(context_, size));
  const bool alive = device_.is_alive(context_);
  return platform_.conclude(
      Call::runtime_malloc,
      Answer<DevicePtr>{.native = alive ? sim::kSuccess : sim::kContextDestroyed});
}

Status SimRuntime::free(DevicePtr ptr) {
  if (device_.owns(ptr.value))
    return platform_.conclude(Call::runtime_free, device_.mem_free(context_, ptr));
  Answer<Nothing> answer;
  if (!device_.is_alive(context_)) {
    answer.native = sim::kContextDestroyed;
  } else if (auto* owner = platform_.device_at(ptr.value)) {
    answer = owner->mem_free({}, ptr);
  } else if (ptr) {
    answer.native = sim::kInvalidValue;
  }
  return platform_.conclude(Call::runtime_free, answer);
}

Result<MemoryInfo> SimRuntime::mem_get_info() {
  return platform_.conclude(Call::runtime_get_info, device_.mem_get_info(context_));
}

}  // namespace emm
