#include "driver/sim/free_memory.hpp"

namespace emm::sim {

Answer<Nothing> free_memory(SimPlatform& platform, Asker asker, DevicePtr ptr) {
  auto& device = platform.device(asker.device);
  if (device.owns(ptr.value) && platform.scheduler().is_quiet())
    return device.mem_free(asker.context, ptr);
  if (auto* owner = platform.device_at(ptr.value)) {
    if (!platform.scheduler().is_quiet() && owner->mem_get_address_range(ptr).value.base == ptr)
      platform.scheduler().finish(owner->ordinal());
    if (owner == &device) return owner->mem_free(asker.context, ptr);
    if (const auto native = device.state(asker.context); native != 0) return {.native = native};
    return owner->mem_free({}, ptr);
  }
  if (const auto native = device.state(asker.context); native != 0) return {.native = native};
  if (!ptr) return {};
  if (VirtualMemory::owns(ptr.value)) {
    return platform.pools().free(ptr);
  }
  if (!platform.scheduler().is_quiet() && platform.host().find(ptr.value))
    platform.scheduler().finish(asker.device);
  const auto freed = platform.host().free(HostSpace::Kind::managed,
                                          reinterpret_cast<HostPtr>(ptr.value));  // NOLINT
  return {.native = freed.native, .value = {}, .size = freed.size};
}

}  // namespace emm::sim
